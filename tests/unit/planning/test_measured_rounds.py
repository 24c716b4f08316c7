"""What rounds took and gave, beside what was predicted."""

from __future__ import annotations

from typing import Any

import pytest

from tailtrain.planning.topology.measured_rounds import compared, measured_rounds
from tests.unit.planning.test_topology_text import TOPOLOGY


def entry(number: int, ended: float, total: int, **fields: Any) -> dict[str, Any]:
    group = [
        {"node": name, "tokens": 100, "tokens_per_second": speed}
        for name, speed in (("a", 60.0), ("b", 40.0))
    ]
    return {
        "round": number,
        "ended_unix": ended,
        "averaging_seconds": 1.0,
        "total_tokens": total,
        "group": group,
        **fields,
    }


def test_the_first_round_is_not_measured() -> None:
    found = measured_rounds([entry(0, 100.0, 500), entry(1, 110.0, 1400), entry(2, 120.0, 2300)])
    assert found is not None
    assert (found.rounds, found.seconds, found.averaging_seconds) == (2, 10.0, 1.0)
    assert found.tokens_per_second == 90.0
    assert found.ideal_tokens_per_second == 100.0
    assert found.utilisation == 0.9


def test_a_round_in_which_somebody_was_lost_is_no_usual_one() -> None:
    ends = [0.0, 10.0, 20.0, 60.0, 70.0]
    found = measured_rounds([entry(number, end, 900 * number) for number, end in enumerate(ends)])
    assert found is not None
    assert found.seconds == 10.0
    assert found.tokens_per_second == pytest.approx(3600 / 70)


def test_numbers_that_are_missing_are_no_long_rounds() -> None:
    found = measured_rounds([entry(0, 0.0, 0), entry(1, 10.0, 900), entry(5, 90.0, 1800)])
    assert found is not None
    assert (found.rounds, found.seconds) == (1, 10.0)


def test_speeds_are_those_of_averagings_of_all() -> None:
    progress = [
        entry(0, 0.0, 0, all=True),
        entry(1, 10.0, 450, all=False),
        entry(2, 20.0, 1800, all=True),
    ]
    found = measured_rounds(progress)
    assert found is not None
    assert (found.rounds, found.seconds, found.tokens_per_second) == (2, 10.0, 90.0)


@pytest.mark.parametrize(
    "progress",
    [
        [],
        [entry(0, 0.0, 0)],
        [entry(0, 0.0, 0), entry(5, 10.0, 9)],
        [entry(0, 0.0, 0), entry(1, 0.0, 9)],
        [entry(0, 0.0, 0), entry(1, 9.0, 9, all=False)],
    ],
)
def test_too_few_rounds_are_not_compared(progress: list[dict[str, Any]]) -> None:
    assert measured_rounds(progress) is None
    assert compared(TOPOLOGY, progress) is None


def test_the_report_says_both_in_numbers_and_in_words() -> None:
    progress = [entry(number, 63.0 * number, 252_000 * number) for number in range(4)]
    found = compared(TOPOLOGY, progress)
    assert found is not None
    assert found["predicted"]["seconds"] == 60.0
    assert found["measured"]["seconds"] == 63.0
    assert found["off"] == pytest.approx(0.05)
    assert found["within"]
    assert found["words"] == [
        "a round took 63.0 s, predicted 60.0 s (+5%): within the target of 15%",
        "an averaging took 1.0 s, predicted 3.0 s",
        "speed: 4,000 tokens/s, 4000% of all speeds; predicted 4,000 tokens/s, 95%",
    ]
    assert compared(None, progress) is None
