"""What rounds took and gave, out of a primary's progress, beside what was predicted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from tailtrain.planning.topology.text import PREDICTION_TARGET, measured_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.topology.offers import Prediction, Topology


@dataclass(frozen=True)
class MeasuredRounds:
    """What was measured over the rounds of a run after the first, which no averaging came before.

    Attributes:
        rounds: how many are measured.
        seconds: of a whole round, in the middle: one round in which somebody was lost is no usual one.
        averaging_seconds: of an averaging, in the middle.
        tokens_per_second: of the fleet, waiting and averaging included.
        ideal_tokens_per_second: the sum of the nodes' own speeds while they train.
    """

    rounds: int
    seconds: float
    averaging_seconds: float
    tokens_per_second: float
    ideal_tokens_per_second: float

    @property
    def utilisation(self) -> float:
        """The fleet's tokens per second against what its nodes could do without waiting."""
        ideal = self.ideal_tokens_per_second
        return self.tokens_per_second / ideal if ideal > 0 else 0.0


def measured_rounds(progress: Sequence[Mapping[str, Any]]) -> MeasuredRounds | None:
    """What a run's rounds took; None where there are fewer than two averagings of all.

    Args:
        progress: the primary's progress.jsonl, one entry an averaging.
    """
    steps = [
        (entry["ended_unix"] - before["ended_unix"], entry["averaging_seconds"])
        for before, entry in pairwise(progress)
        if entry["round"] == before["round"] + 1
    ]
    together = [entry for entry in progress if entry.get("all", True)]
    if not steps or len(together) <= 1:
        return None
    first, last = together[0], together[-1]
    speeds: dict[str, list[float]] = {}
    for entry in together[1:]:
        for member in entry["group"]:
            if member["tokens"] > 0:
                speeds.setdefault(member["node"], []).append(member["tokens_per_second"])
    elapsed = last["ended_unix"] - first["ended_unix"]
    if elapsed <= 0:
        return None
    return MeasuredRounds(
        rounds=len(steps),
        seconds=median(seconds for seconds, _ in steps),
        averaging_seconds=median(averaging for _, averaging in steps),
        tokens_per_second=(last["total_tokens"] - first["total_tokens"]) / elapsed,
        ideal_tokens_per_second=sum(map(fmean, speeds.values())),
    )


def compared(topology: Topology | None, progress: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What a report says of rounds: predicted, measured, and in words; None where there is none to compare.

    Args:
        topology: as planned, None where there was none.
        progress: the primary's.
    """
    found = measured_rounds(progress) if topology else None
    if topology is None or found is None:
        return None
    said = topology.prediction
    off = found.seconds / said.seconds - 1
    return {
        "predicted": {
            "seconds": said.seconds,
            "averaging_seconds": said.averaging_seconds,
            "tokens_per_second": said.tokens_per_second,
            "utilisation": said.utilisation,
        },
        "measured": {
            "rounds": found.rounds,
            "seconds": found.seconds,
            "averaging_seconds": found.averaging_seconds,
            "tokens_per_second": found.tokens_per_second,
            "utilisation": found.utilisation,
            "ideal_tokens_per_second": found.ideal_tokens_per_second,
        },
        "off": off,
        "target": PREDICTION_TARGET,
        "within": abs(off) <= PREDICTION_TARGET,
        "words": [
            measured_line(topology, found.seconds),
            f"an averaging took {found.averaging_seconds:.1f} s, predicted {said.averaging_seconds:.1f} s",
            _speed_line(found, said),
        ],
    }


def _speed_line(found: MeasuredRounds, said: Prediction) -> str:
    return (
        f"speed: {found.tokens_per_second:,.0f} tokens/s, {found.utilisation:.0%} of all speeds;"
        f" predicted {said.tokens_per_second:,.0f} tokens/s, {said.utilisation:.0%}"
    )
