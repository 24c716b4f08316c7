"""What a plan decides about rounds and averagings, where the declaration leaves it open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailtrain.planning.engine_settings import CHOSEN
from tailtrain.spec import CoordinationProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.planning.settings import Settings

USUAL_ROUND_SECONDS = 60.0
USUAL_ALL_EACH = 4


@dataclass(frozen=True)
class Choices:
    """How rounds and averagings go.

    Attributes:
        round_seconds: of training in a round.
        averaging_timeout_seconds: when an averaging is given up.
        all_each: every how many rounds all average together; 1 is always.
        compression: in what form weights travel.
        reducers: the part of the weights that each node averages for all, adding up to 1; empty for equal
            parts.
    """

    round_seconds: float
    averaging_timeout_seconds: float
    all_each: int = 1
    compression: str = "none"
    reducers: Mapping[str, float] = field(default_factory=dict)


def declared_choices(settings: Settings) -> Choices:
    """What is declared, and the usual where nothing is."""
    engine, loop = settings.engine, settings.loop
    gossip = settings.training.coordination_protocol is CoordinationProtocol.ENE_GOSSIP
    return Choices(
        round_seconds=loop.round_seconds or USUAL_ROUND_SECONDS,
        averaging_timeout_seconds=loop.averaging_timeout_seconds,
        all_each=(engine.all_each or USUAL_ALL_EACH) if gossip else 1,
        compression="none" if engine.compression == CHOSEN else engine.compression,
    )
