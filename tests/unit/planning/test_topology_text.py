"""What a plan and a report say of a topology."""

from __future__ import annotations

import dataclasses

import pytest

from tailtrain.planning.topology.offers import Compression, Prediction, Role, Topology, Way
from tailtrain.planning.topology.text import measured_line, share_line, topology_lines

TOPOLOGY = Topology(
    roles={"a": Role.TRAINS, "b": Role.TRAINS, "c": Role.DATA},
    reasons={"c": "0.5 GiB of memory; model and optimiser need 1.0 GiB"},
    shares={"a": 0.75, "b": 0.25, "c": 0.0},
    reducers={"a": 0.9, "b": 0.1, "c": 0.0},
    way=Way.PAIRS,
    all_each=4,
    compression=Compression.FP16,
    steps={"a": 1500, "b": 500},
    prediction=Prediction(57.0, 3.0, 240_000, 4210.5263),
    by_cores=Prediction(87.0, 3.0, 240_000, 4210.5263),
    equal=Prediction(114.0, 6.0, 240_000, 4210.5263),
    fastest=3157.8947,
)


def test_a_plan_says_what_to_expect_and_what_other_shares_would_give() -> None:
    assert topology_lines(TOPOLOGY) == (
        "round: 60.0 s, of it 3.0 s of averaging; 240,000 tokens",
        "averaging: in pairs, all together every 4 rounds and at the end, in 16 bits",
        "speed: 4,000 tokens/s, 95% of all speeds",
        "against the fastest node alone: 1.27 times (ideal: 1.33)",
        "with shares by cores: 90.0 s for the same tokens, 1.50 times as long (2,667 tokens/s)",
        "with equal shares: 120.0 s for the same tokens, 2.00 times as long (2,000 tokens/s)",
        "c does not train, it keeps data and validates: 0.5 GiB of memory; model and optimiser need 1.0 GiB",
    )
    assert share_line(TOPOLOGY, "a") == "75.0% of records and work, 1,500 steps a round, averages 90%"
    assert share_line(TOPOLOGY, "c") == "keeps data and validates"


@pytest.mark.parametrize(
    ("way", "words"), [(Way.STAR, "by the primary, for all"), (Way.GROUP, "all together")]
)
def test_each_way_has_its_words(way: Way, words: str) -> None:
    lines = topology_lines(dataclasses.replace(TOPOLOGY, way=way, all_each=1))
    assert lines[1].startswith(f"averaging: {words}")


def test_what_is_declared_is_not_compared_with_other_shares() -> None:
    assert not [line for line in topology_lines(TOPOLOGY, chosen=False) if line.startswith("with ")]


@pytest.mark.parametrize(
    ("guessed", "words"),
    [
        (("a", "b", "c"), "speeds are guessed by cores: no node has measured its own yet"),
        (("a", "c"), "guessed by cores, not measured yet: the speed of a, c"),
    ],
)
def test_a_guess_is_called_one(guessed: tuple[str, ...], words: str) -> None:
    assert words in topology_lines(dataclasses.replace(TOPOLOGY, guessed=guessed))


def test_a_large_fleet_is_counted() -> None:
    names = tuple(f"n{number:04}" for number in range(1000))
    roles = dict.fromkeys((*names, "known"), Role.TRAINS)
    fleet = dataclasses.replace(TOPOLOGY, roles=roles, guessed=names)
    assert "guessed by cores, not measured yet: the speed of 1,000 nodes" in topology_lines(fleet)


def test_a_report_compares_with_what_was_measured() -> None:
    assert measured_line(TOPOLOGY, 66.0) == (
        "a round took 66.0 s, predicted 60.0 s (+10%): within the target of 15%"
    )
    assert "(-50%): not within" in measured_line(TOPOLOGY, 30.0)
