"""Health out of measurements, and work that follows speed and health."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.worker.gossip.health import (
    BEAT_SECONDS,
    Speed,
    Vitals,
    health_of,
    may_decide,
    participants,
    takes_part,
    work_shares,
)
from tailtrain.worker.gossip.vitals import checkpoints_that_fit, memory_free

if TYPE_CHECKING:
    from pathlib import Path

VITALS = st.builds(
    Vitals,
    beat_age_seconds=st.floats(0, 100),
    speed=st.floats(0, 1.2),
    memory_free=st.floats(0, 1),
    disk_checkpoints=st.floats(0, 100),
    path=st.sampled_from(["direct", "relayed"]),
)
SPEEDS = {"a": 16.0, "b": 8.0, "c": 4.0, "d": 2.0, "e": 4.0, "f": 2.0}


def test_a_node_without_trouble_is_at_one() -> None:
    assert health_of(Vitals()) == 1.0
    assert health_of(Vitals(beat_age_seconds=2 * BEAT_SECONDS, memory_free=0.1, disk_checkpoints=2)) == 1.0


@given(VITALS)
def test_it_is_between_nothing_and_one(vitals: Vitals) -> None:
    assert 0.0 <= health_of(vitals) <= 1.0


@given(VITALS, st.floats(0, 1))
def test_no_trouble_more_makes_a_node_healthier(vitals: Vitals, much: float) -> None:
    for worse in (
        dataclasses.replace(vitals, beat_age_seconds=vitals.beat_age_seconds + much * 10),
        dataclasses.replace(vitals, speed=vitals.speed * much),
        dataclasses.replace(vitals, memory_free=vitals.memory_free * much),
        dataclasses.replace(vitals, disk_checkpoints=vitals.disk_checkpoints * much),
        dataclasses.replace(vitals, path="relayed"),
    ):
        assert health_of(worse) <= health_of(vitals)


@pytest.mark.parametrize(
    ("trouble", "takes"),
    [
        ({"speed": 0.1}, True),
        ({"path": "relayed"}, True),
        ({"speed": 0.1, "path": "relayed"}, True),
        ({"speed": 0.1, "path": "relayed", "memory_free": 0.08}, False),
        ({"beat_age_seconds": 3.5 * BEAT_SECONDS}, False),
        ({"memory_free": 0.03}, False),
        ({"disk_checkpoints": 0.9}, False),
    ],
)
def test_who_takes_part(trouble: dict[str, Any], takes: bool) -> None:  # noqa: FBT001 - a case of a table
    assert takes_part(health_of(Vitals(**trouble))) is takes


def test_two_thirds_decide() -> None:
    fleet = ["a", "b", "c", "d", "e", "f"]
    assert may_decide(fleet[:4], fleet)
    assert not may_decide(fleet[:3], fleet)
    assert not may_decide(["a", "a", "a", "b", "x", "y"], fleet)
    assert not may_decide([], [])
    healths = {"a": 1.0, "b": 0.5, "c": 0.51}
    assert participants(healths, ["a", "b", "c", "d"]) == {"a", "c"}
    assert participants(healths, ["c"]) == {"c"}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 1e6), min_size=1),
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
)
def test_shares_add_up_and_follow_speed_times_health(speeds: dict[str, float], levels: list[float]) -> None:
    healths = dict(zip("abcdef", levels, strict=True))
    shares = work_shares(speeds, healths)
    active = [node for node in speeds if takes_part(healths[node])]
    assert set(shares) == set(speeds)
    assert sum(shares.values()) == pytest.approx(1.0 if active else 0.0)
    for one in active:
        for other in active:
            assert shares[one] * speeds[other] * healths[other] == pytest.approx(
                shares[other] * speeds[one] * healths[one]
            )
    assert all(shares[node] == 0 for node in speeds if node not in active)


class Fleet:
    """Rounds of work that is handed out by shares; each node's real speed can change at any time."""

    def __init__(self, noise: float) -> None:
        self.real = dict(SPEEDS)
        self.speeds = {node: Speed().after(speed) for node, speed in self.real.items()}
        self._noise, self._choose = noise, random.Random(7)  # noqa: S311 - the same each time
        self.seconds: dict[str, float] = {}

    def round(self) -> dict[str, float]:
        """One round of 60 seconds' work; each node's share of it."""
        healths = {node: health_of(Vitals(speed=speed.of_best)) for node, speed in self.speeds.items()}
        shares = work_shares({node: speed.smoothed for node, speed in self.speeds.items()}, healths)
        tokens = 60 * sum(speed.smoothed for speed in self.speeds.values())
        for node, share in shares.items():
            speed = self.real[node] * (1 + self._choose.uniform(-self._noise, self._noise))
            self.seconds[node] = tokens * share / speed
            self.speeds[node] = self.speeds[node].after(speed)
        return shares


def test_at_steady_speeds_all_finish_together() -> None:
    fleet = Fleet(noise=0.0)
    for _ in range(5):
        fleet.round()
    assert max(fleet.seconds.values()) == pytest.approx(min(fleet.seconds.values()))


def test_a_node_at_a_tenth_gets_less_within_two_rounds_and_more_again_within_two() -> None:
    fleet = Fleet(noise=0.05)
    for _ in range(10):
        usual = fleet.round()["b"]
    fleet.real["b"] /= 10
    fleet.round()  # it slows down in this one
    fleet.round()
    less = fleet.round()["b"]
    assert less < 0.2 * usual
    for _ in range(10):
        steady = fleet.round()["b"]
    assert 0 < steady < 0.1 * usual
    fleet.real["b"] *= 10
    fleet.round()
    fleet.round()
    assert fleet.round()["b"] > 0.85 * usual
    for _ in range(3):
        fleet.round()
    assert fleet.round()["b"] == pytest.approx(usual, rel=0.1)


def test_what_has_changed_for_good_becomes_the_measure() -> None:
    speed = Speed().after(100)
    for _ in range(300):
        speed = speed.after(10)
    assert speed.of_best == pytest.approx(1.0)
    assert Speed().of_best == 1.0
    assert speed.after(0) == speed


def test_memory_is_that_of_the_group_or_of_the_machine_whichever_is_worse(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    assert memory_free(proc, groups) == 1.0
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 500 kB\n")
    assert memory_free(proc, groups) == 0.5
    group = groups / "system.slice" / "worker.service"
    group.mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/system.slice/worker.service\n")
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("900\n")
    assert memory_free(proc, groups) == 0.5
    (group / "memory.max").write_text("1000\n")
    (group / "memory.stat").write_text("anon 500\ninactive_file 300\n")
    assert memory_free(proc, groups) == pytest.approx(0.4)


def test_disk_is_counted_in_checkpoints(tmp_path: Path) -> None:
    assert 0 < memory_free() <= 1
    assert checkpoints_that_fit(tmp_path, 1) > checkpoints_that_fit(tmp_path, 1000) > 0
