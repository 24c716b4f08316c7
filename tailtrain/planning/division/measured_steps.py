"""What the steps of a divided model took, out of the primary's progress, beside what was predicted."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.division.planned import Division


def compared_steps(division: Division | None, progress: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What a report says of steps; None where no model was divided, or too little of it was seen.

    Measured between checkpoints of the same nodes, the first of each cut left out: processes warm up in it.
    With nodes lost for long it is the speed of fewer nodes than the prediction is for, so only checkpoints of
    as many nodes as it has count.

    Args:
        division: as planned.
        progress: the primary's, one entry a checkpoint.
    """
    if division is None:
        return None
    seconds = [
        entry["train_seconds"] / (entry["step"] - before["step"])
        for before, entry in pairwise(progress)
        if entry["live"] == before["live"]
        and entry["step"] > before["step"]
        and len(entry["group"]) == len(division.parts)
    ]
    if not seconds:
        return None
    measured = median(seconds)
    tokens = division.tokens_per_second * division.step_seconds
    off = measured / division.step_seconds - 1
    return {
        "predicted_step_seconds": division.step_seconds,
        "measured_step_seconds": measured,
        "words": (
            f"a step was predicted to take {1000 * division.step_seconds:,.0f} ms"
            f" ({division.tokens_per_second:,.0f} tokens/s) and took {1000 * measured:,.0f} ms"
            f" ({tokens / measured:,.0f} tokens/s): {off:+.0%}"
        ),
    }
