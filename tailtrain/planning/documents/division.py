"""What a plan's document says of a divided model."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]


class PartEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one node holds of the model."""

    node: str
    layers: Annotated[tuple[int, int], Meta(description="Its first layer, and the one after its last.")]
    parameter_bytes: Annotated[Count, Meta(description="Of its weights.")]
    memory_bytes: Annotated[Count, Meta(description="What it needs at its fullest.")]
    speed: Annotated[float, Meta(description="Tokens per second of the whole model, guessed or measured.")]


class DivisionEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who holds which part of the model, and what that is predicted to do."""

    strategy: str
    parts: Annotated[tuple[PartEntry, ...], Meta(description="In the order in which a batch passes them.")]
    standby: Annotated[tuple[str, ...], Meta(description="Take over when one of the others is lost.")]
    whole_bytes: Annotated[Count, Meta(description="Of the whole model's weights.")]
    microbatches: Count
    steps: Annotated[Count, Meta(description="Of the whole run.")]
    step_seconds: Annotated[float, Meta(description="Predicted time of a step.")]
    tokens_per_second: Annotated[float, Meta(description="Predicted speed of the fleet.")]
    bubble: Annotated[float, Meta(description="The share of a step that stages wait for each other.")]
    latency_seconds: Annotated[
        float | None, Meta(description="What round trips cost each step; null for a pipeline.")
    ]
    links_known: Annotated[
        bool, Meta(description="Whether round trips were measured; otherwise they count as nothing.")
    ]
    data_note: Annotated[str, Meta(description="Why data_sharding has no effect; empty where it is off.")]
