"""The parts of a plan's document that speak of its topology: what to expect of rounds, and who does what."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0)]
Seconds = Annotated[float, Meta(ge=0)]


class RoundEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round as it is predicted."""

    training_seconds: Seconds
    averaging_seconds: Annotated[float, Meta(ge=0, description="On average over the rounds.")]
    seconds: Annotated[float, Meta(gt=0, description="The whole round.")]
    tokens: Annotated[float, Meta(gt=0, description="Trained in it by all.")]
    tokens_per_second: Positive
    utilisation: Annotated[
        float, Meta(description="Of what all nodes could train without ever waiting, from 0 to 1.")
    ]


class TopologyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How nodes average, and what is expected of a round."""

    chosen: Annotated[bool, Meta(description="Whether the optimizer chose it; otherwise it is declared.")]
    way: Annotated[
        Literal["star", "group", "pairs"],
        Meta(description="The primary averages for all; all do together; or pairs, and all now and then."),
    ]
    all_each: Annotated[int, Meta(ge=1, description="Every how many rounds all average; 1 is always.")]
    compression: Annotated[str, Meta(description="In what form weights travel.")]
    expected: RoundEntry
    by_cores: Annotated[RoundEntry, Meta(description="The same tokens, in fixed shares by cores.")]
    equal: Annotated[RoundEntry, Meta(description="The same tokens, in equal shares.")]
    ideal: Annotated[
        float, Meta(description="The sum of all nodes' speeds over that of the fastest: no fleet is faster.")
    ]
    speedup: Annotated[float, Meta(description="Expected against the fastest node alone.")]
    guessed: Annotated[
        tuple[str, ...], Meta(description="Nodes whose speed nobody has measured: it is a guess by cores.")
    ]
    warning: Annotated[str, Meta(description="What may go wrong all the same; empty where nothing.")]
    words: Annotated[tuple[str, ...], Meta(description="The same in words.")]


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node's part in the training."""

    trains: bool
    share: Annotated[float, Meta(description="Of the training records.")]
    steps: Annotated[int, Meta(ge=0, description="Expected in a round.")]
    averages: Annotated[float, Meta(description="The part of the weights that it averages for all.")]
    tokens_per_second: Annotated[float, Meta(ge=0, description="That it is taken to train at, alone.")]
    words: Annotated[str, Meta(description="The same in words.")]
