"""The clock of rounds: which come before all average together again, and when each one's training ends.

All members of an averaging of all work it out for themselves, from what all were told in it: the latest
arrival, the longest averaging of the one before, and everybody's tokens and speed. So all know the same times
until the next averaging of all without another message. With pairs in between (eneGossip) those rounds have
their ends fixed in advance too: a pair that takes longer than allowed eats into its own next training, and a
node that comes too late for a round skips it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.ledger import Contribution

_LONGEST = 1000  # rounds in pairs before all average again, where only the end of the run would ask for it


@dataclass(frozen=True)
class Round:
    """What a node works on until the next averaging of all.

    Attributes:
        number: the round of that averaging.
        ends: when training for it ends (unix seconds, the run's clock).
        pair_ends: when training for each of the rounds before it ends, in which pairs average; none where all
            average in every round, or where this node joined in between.
    """

    number: int
    ends: float
    pair_ends: tuple[float, ...] = ()

    @property
    def pairs(self) -> tuple[tuple[int, float], ...]:
        """Number and end of each round in which pairs average."""
        first = self.number - len(self.pair_ends)
        return tuple((first + index, ends) for index, ends in enumerate(self.pair_ends))


def following(config: WorkerConfig, group: Collection[Contribution], total_tokens: int) -> Round:
    """What comes after an averaging of all.

    Args:
        config: of this node; what is looked up in it is the same on all nodes.
        group: what its members said.
        total_tokens: what the fleet has committed with it.
    """
    seconds = config.training.round_seconds
    allowance = min(seconds, max(member.averaging_seconds for member in group))
    start = max(member.arrived for member in group)
    number = next(iter(group)).round
    count = 1
    if config.gossips:
        per_round = sum(member.tokens_per_second for member in group) * seconds
        left = config.training.target_tokens - total_tokens
        count = rounds_until_all(config.coordination.all_each, left, per_round)
    ends = [start + index * (allowance + seconds) for index in range(1, count + 1)]
    return Round(number + count, ends[-1], tuple(ends[:-1]))


def rounds_until_all(all_each: int, left: float, per_round: float) -> int:
    """In how many rounds all average again, 1 for the next one.

    Args:
        all_each: every how many rounds; 0 for only at the end.
        left: tokens to the target.
        per_round: tokens that the fleet trains in a round.
    """
    most = all_each or _LONGEST
    if per_round <= 0:  # nobody trained: meet again soon, to see who does
        return 1
    if left >= most * per_round:
        return most
    return 1 if left <= per_round else math.ceil(left / per_round)
