"""The mean itself: weighted by tokens, equal to the bit on all nodes, and all or nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.worker.average_once import vector_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def average(make_fleet: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    processes: list[subprocess.Popen[bytes]] = []

    def run(
        fleet: Any, tokens: list[int], size: int, options: list[dict[str, Any]] | None = None
    ) -> tuple[list[Path], list[subprocess.Popen[bytes]]]:
        outs = [fleet.root / f"mean{index}" for index in range(fleet.size)]
        for index, count in enumerate(tokens):
            arguments = [str(fleet.write_config(index)), str(count), str(size), str(outs[index])]
            arguments += [json.dumps(options[index])] if options else []
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(Path(__file__).with_name("average_once.py")), *arguments],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "HIVEMIND_LOGLEVEL": "CRITICAL"},
                    start_new_session=True,
                )
            )
        return outs, processes

    yield run
    for process in processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.wait()


def _weighted_mean(
    tokens: list[int], size: int, members: list[int] | None = None
) -> np.ndarray[Any, np.dtype[np.float64]]:
    chosen = list(range(len(tokens))) if members is None else members
    vectors = [vector_of(f"n{index}", size).numpy().astype(np.float64) for index in chosen]
    return np.average(vectors, axis=0, weights=[tokens[index] for index in chosen])


def _said(out: Path) -> dict[str, Any]:
    return dict(json.loads(Path(f"{out}.said").read_text()))


@pytest.mark.parametrize("protocol", ["decentralized", "centralized"])
def test_the_mean_is_weighted_by_tokens_and_the_same_to_the_bit(
    make_fleet: Callable[..., Any], average: Callable[..., Any], protocol: str
) -> None:
    tokens, size = [100, 3_000, 70_001], 300_000  # several parts, reduced by different nodes
    fleet = make_fleet(3, protocol=protocol, quorum=3, averaging_timeout_seconds=30.0)
    outs, processes = average(fleet, tokens, size)
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    contents = [out.read_bytes() for out in outs]
    assert contents[0] == contents[1] == contents[2]
    np.testing.assert_allclose(
        np.frombuffer(contents[0], np.float32), _weighted_mean(tokens, size), atol=2e-6
    )


def test_pairs_meet_by_their_bits_and_a_partner_that_never_comes_is_not_waited_for(
    make_fleet: Callable[..., Any], average: Callable[..., Any]
) -> None:
    """n0 with n1, n2 with n3; n4 was told to meet n0, which does not know of it. The quorum is for all."""
    tokens, size = [100, 3_000, 70_001, 5, 60], 100_000
    fleet = make_fleet(5, quorum=5, averaging_timeout_seconds=60.0)
    groups = [["n0", "n1"], ["n0", "n1"], ["n2", "n3"], ["n2", "n3"], ["n0", "n4"]]
    outs, processes = average(fleet, tokens, size, [{"group": group} for group in groups])
    assert [process.wait(60) for process in processes] == [0] * 5
    contents = [out.read_bytes() for out in outs[:4]]
    assert contents[0] == contents[1] != contents[2] == contents[3]
    for members in ([0, 1], [2, 3]):
        for index in members:
            mean = np.fromfile(outs[index], np.float32)
            np.testing.assert_allclose(mean, _weighted_mean(tokens, size, members), atol=2e-6)
    alone = _said(outs[4])
    assert alone["errors"] == ["no group came together in time"]
    assert alone["at"] - Path(f"{outs[4]}.begun").stat().st_mtime < 15  # not the averaging timeout of 60 s


@pytest.mark.parametrize(("compression", "ratio", "off"), [("fp16", 0.5, 2**-10), ("8-bit", 0.251, 2 / 254)])
def test_compressed_all_still_hold_the_same_and_fixed_reducers_do_the_work(
    make_fleet: Callable[..., Any], average: Callable[..., Any], compression: str, ratio: float, off: float
) -> None:
    """n0 averages three quarters, n1 the rest; n2 only sends and takes."""
    tokens, size = [1_000, 3_000, 70_000], 600_000
    fleet = make_fleet(3, quorum=3, averaging_timeout_seconds=30.0)
    for config in fleet.configs:
        config["coordination"] |= {"compression": compression, "reducers": {"n0": 0.75, "n1": 0.25}}
    outs, processes = average(fleet, tokens, size, [{"base": True}] * 3)
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    contents = [out.read_bytes() for out in outs]
    assert contents[0] == contents[1] == contents[2]
    base = vector_of("base", size).numpy()
    change = np.frombuffer(contents[0], np.float32) - base
    largest = max(float(vector_of(f"n{index}", size).abs().max()) for index in range(3))
    # Once on the way there and once on the way back; the sum of base and change rounds in its last bit.
    np.testing.assert_allclose(
        change, 0.01 * _weighted_mean(tokens, size), atol=0.01 * largest * 2 * off + 1e-6
    )
    for index, times in ((0, 0.75 * 2 + 0.25), (1, 0.25 * 2 + 0.75), (2, 1.0)):
        moved = _said(outs[index])["moved"] / (4 * size)
        assert moved == pytest.approx(times * ratio, rel=0.06)  # whole parts are dealt


def test_members_whose_weights_are_not_what_they_said_are_named_and_left_out(
    make_fleet: Callable[..., Any], average: Callable[..., Any]
) -> None:
    tokens, size = [100, 3_000, 70_001, 500], 300_000
    fleet = make_fleet(4, quorum=2, averaging_timeout_seconds=30.0)
    outs, processes = average(fleet, tokens, size, [{}, {}, {"broken": "nan"}, {"broken": "large"}])
    assert [process.wait(60) for process in processes[:2]] == [0, 0]
    for out in outs[:2]:
        assert Path(f"{out}.group").read_text() == "n0 n1"
        mean = np.fromfile(out, np.float32)
        np.testing.assert_allclose(mean, _weighted_mean(tokens, size, [0, 1]), atol=2e-6)
    errors = " ".join(error for out in outs[:2] for error in _said(out)["errors"])
    assert re.search("n2: [^:]*not finite", errors), errors
    assert re.search("n3: [^:]*(larger than what was said|not average with)|with n3", errors), errors


def test_a_member_killed_while_averaging_is_in_the_mean_entirely_or_not_at_all(
    make_fleet: Callable[..., Any], average: Callable[..., Any]
) -> None:
    tokens, size = [1_000, 2_000, 4_000], 20_000_000  # large enough to be killed in between
    fleet = make_fleet(3, quorum=2, averaging_timeout_seconds=60.0)
    outs, processes = average(fleet, tokens, size)
    begun = Path(f"{outs[2]}.begun")
    while not begun.exists():
        time.sleep(0.02)
    time.sleep(0.8)
    os.killpg(processes[2].pid, signal.SIGKILL)
    # Both notice at once, and average anew: nobody waits out a time-out.
    assert [process.wait(30) for process in processes[:2]] == [0, 0]
    groups = [Path(f"{out}.group").read_text().split() for out in outs[:2]]
    assert groups[0] == groups[1]
    members = [int(node[1:]) for node in groups[0]]
    expected = _weighted_mean(tokens, size, members)
    for out in outs[:2]:
        np.testing.assert_allclose(np.fromfile(out, np.float32), expected, atol=2e-6)
