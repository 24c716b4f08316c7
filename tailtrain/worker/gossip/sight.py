"""What a node sees of the fleet at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.worker.gossip.members import Member


def alive(members: Mapping[str, Member]) -> frozenset[str]:
    """Who is alive for the agent."""
    return frozenset(name for name, member in members.items() if member.status == "alive")


@dataclass(frozen=True)
class Sight:
    """What this node sees of the fleet at one moment.

    Attributes:
        members: all that the agent knows, by name, this node included.
        dead: failed, and confirmed by another observer.
        unconfirmed: failed for this node's agent alone, so far.
        isolated: this node's agent holds others failed and nobody answers: it is this node that is cut off.
        connected: whether the local agent answers; while it does not, the rest is as it was before.
    """

    members: Mapping[str, Member] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    unconfirmed: frozenset[str] = frozenset()
    isolated: bool = False
    connected: bool = False

    @property
    def live(self) -> frozenset[str]:
        """Nodes to count on: alive, or held failed without a second witness."""
        return alive(self.members) | self.unconfirmed
