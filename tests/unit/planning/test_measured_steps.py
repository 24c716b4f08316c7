"""Steps of a divided model: measured beside predicted."""

from __future__ import annotations

from typing import Any

import pytest

from tailtrain.planning.division.measured_steps import compared_steps
from tests.plans.situations import Situation

PLAN = (
    Situation()
    .with_settings(distribution_strategy="pipelineParallel", coordination_protocol="centralized")
    .round_trips(0.001)
    .plan()
)
assert PLAN.division is not None
NODES = [part.node for part in PLAN.division.parts]


def entry(step: int, seconds: float, live: list[str] | None = None) -> dict[str, Any]:
    nodes = NODES if live is None else live
    return {"step": step, "train_seconds": seconds, "live": nodes, "group": [{"node": n} for n in nodes]}


def test_the_middle_of_whole_intervals_counts() -> None:
    assert PLAN.division is not None
    found = compared_steps(
        PLAN.division,
        [
            entry(50, 90.0),  # processes start
            entry(100, 5.0),
            entry(150, 6.0),
            entry(200, 40.0, NODES[:1]),  # two were lost
            entry(250, 9.0, NODES[:1]),
            entry(300, 30.0),  # they are back
            entry(350, 7.0),
        ],
    )
    assert found is not None
    assert found["measured_step_seconds"] == pytest.approx(0.12)
    assert found["predicted_step_seconds"] == PLAN.division.step_seconds
    assert "and took 120 ms (8,533 tokens/s)" in found["words"]


def test_nothing_is_compared_where_there_is_nothing() -> None:
    assert compared_steps(None, [entry(50, 1.0), entry(100, 1.0)]) is None
    assert compared_steps(PLAN.division, []) is None
    assert compared_steps(PLAN.division, [entry(50, 1.0)]) is None
    assert compared_steps(PLAN.division, [entry(50, 1.0), entry(50, 1.0)]) is None
