"""The guarantees after a run of a divided model: nodes wait for each other, and stand by."""

from __future__ import annotations

from typing import Any

from tailtrain.planning.balance import idle_shares, imbalances
from tailtrain.planning.guarantees import RunRecord, Verdict, judge, losses
from tailtrain.planning.settings import parse_settings
from tailtrain.spec.defaults import ALL_NODES
from tests.plans.situations import GIB, SETTINGS

THREE = ALL_NODES[:3]
NAMES = [node.hostname for node in THREE]


def checkpoint(number: int, busy: dict[str, float], live: list[str]) -> dict[str, Any]:
    """A line of progress as a rank writes it: 50 steps of 0.2 s, 1,000 tokens each."""
    whole = sum(busy.values())
    group = [
        {
            "node": node,
            "tokens": round(50_000 * seconds / whole),
            "records": 0,
            "loss": 2.0,
            "tokens_per_second": round(50_000 / whole, 1),
            "cpu_seconds": seconds,
            "train_seconds": 10.0,
            "busy_seconds": seconds,
            "layers": [0, 1],
        }
        for node, seconds in busy.items()
    ]
    return {
        "round": number,
        "step": 50 * (number + 1),
        "train_seconds": 10.0,
        "group": group,
        "total_tokens": 50_000 * (number + 1),
        "live": live,
    }


def record(*rounds: dict[str, Any]) -> RunRecord:
    return RunRecord(
        rounds=rounds,
        contributions=[{"node": node, "tokens": 1000, "in_final_average": True} for node in NAMES],
        cores={node.hostname: node.cores for node in THREE},
        memory_bytes={node.hostname: node.ram_gb * GIB for node in THREE},
        usable_cores={node.hostname: 1.0 for node in THREE},
        views=dict.fromkeys(NAMES, NAMES),
        availability={},
    )


def verdict(found: RunRecord, name: str) -> tuple[Verdict, str]:
    training = parse_settings(
        {**SETTINGS, "distribution_strategy": "pipelineParallel", "coordination_protocol": "centralized"}
    ).training
    each = next(each for each in judge(THREE, training, found) if each.name == name)
    return each.verdict, each.measured


def test_a_stage_that_waits_is_idle_although_all_train_for_the_same_time() -> None:
    busy = dict(zip(NAMES, (9.0, 8.0, 4.0), strict=True))
    found = record(*(checkpoint(number, busy, NAMES) for number in range(3)))
    shares = idle_shares(found)
    assert {node: round(share, 3) for node, share in shares.items()} == dict(
        zip(NAMES, (0.1, 0.2, 0.6), strict=True)
    )
    assert max(imbalances(found).values()) > 0.1
    verdict_of, measured = verdict(found, "loadBalancing")
    assert verdict_of is Verdict.NOT_MET
    assert f"largest idle share 60.0% ({NAMES[2]}" in measured


def test_stages_that_fit_are_balanced() -> None:
    busy = dict.fromkeys(NAMES, 9.8)
    found = record(*(checkpoint(number, busy, NAMES) for number in range(3)))
    assert verdict(found, "loadBalancing")[0] is Verdict.MET


def test_who_stands_by_is_not_lost() -> None:
    two = dict.fromkeys(NAMES[:2], 9.0)
    found = record(checkpoint(0, dict.fromkeys(NAMES, 9.0), NAMES), checkpoint(1, two, NAMES))
    assert losses(found).lost == ()
    assert verdict(found, "faultTolerance")[0] is Verdict.NOT_EXERCISED


def test_a_stage_that_was_lost_and_came_back_is_tolerated() -> None:
    whole, two = dict.fromkeys(NAMES, 9.0), dict.fromkeys(NAMES[:2], 9.0)
    found = record(checkpoint(0, whole, NAMES), checkpoint(1, two, NAMES[:2]), checkpoint(2, whole, NAMES))
    assert (losses(found).lost, losses(found).regained) == ((NAMES[2],), (NAMES[2],))
    verdict_of, measured = verdict(found, "faultTolerance")
    assert verdict_of is Verdict.MET
    assert "0 rounds and 0 committed tokens lost" in measured
