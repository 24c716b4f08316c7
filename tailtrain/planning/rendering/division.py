"""What a plan's text says of a divided model: who holds what, how fast that should be, what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.parts import counted, megabytes
from tailtrain.planning.rendering.text import tables, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.planning.documents.division import DivisionEntry
    from tailtrain.planning.documents.plan import PlanDocument

_GIB = 2**30
_PIPELINE = "pipelineParallel"


def training_of_a_division(document: PlanDocument) -> str:
    """How a divided model is trained, in the words of the settings."""
    get, found = document.settings, document.division
    steps = f"{found.steps:,} steps of" if found else ""
    return (
        f"{get['training.target_tokens']:,} tokens in {steps} {get['training.batch_size']} x"
        f" {get['model.context']} tokens, a checkpoint every {get['engine.checkpoint_steps']} steps"
    )


def division(document: PlanDocument) -> list[str]:
    """The parts of the model, and the prediction."""
    found = document.division
    if found is None:
        return []
    pipeline = found.strategy == _PIPELINE
    rows: list[Sequence[object]] = [
        ("Stage" if pipeline else "Part", "node", "layers", "weights", "of all", "memory", "tokens/s alone")
    ]
    for number, part in enumerate(found.parts):
        first, after = part.layers
        rows.append(
            (
                number,
                part.node,
                f"{first}-{after - 1}" if pipeline else "a part of each",
                megabytes(part.parameter_bytes),
                f"{part.parameter_bytes / found.whole_bytes:.0%}",
                f"{part.memory_bytes / _GIB:.1f} GiB",
                f"{part.speed:,.0f}",
            )
        )
    lines = tables(rows, right=(0, 3, 4, 5, 6), indent=0)
    if found.standby:
        lines += wrapped(f"stand by, and take over when one is lost: {', '.join(found.standby)}")
    lines += wrapped(_predicted(found))
    lines += wrapped(_waits(found))
    if found.data_note:
        lines += wrapped(found.data_note)
    return lines


def _predicted(found: DivisionEntry) -> str:
    links = "" if found.links_known else ", not counting the network, which was not measured for this plan"
    return (
        f"predicted: {found.step_seconds * 1000:,.0f} ms a step, {found.tokens_per_second:,.0f} tokens/s,"
        f" {counted(found.steps, 'step')} in {found.steps * found.step_seconds:,.0f} s{links}"
    )


def _waits(found: DivisionEntry) -> str:
    if found.latency_seconds is not None:
        waits = f"{1000 * found.latency_seconds:,.0f} ms of round trips in each step"
        return f"waiting for the network: four sums over all nodes a layer, {waits}"
    text = f"bubble: {found.bubble:.0%} of a step, with {found.microbatches} microbatches"
    if len(found.parts) == found.microbatches:
        text += "; there are at most as many stages, so more microbatches may use more nodes"
    return text
