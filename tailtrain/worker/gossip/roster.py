"""Who of the fleet works on this run now, who may decide, who hosts a rendezvous: pure, from what is seen.

All nodes have to come to the same answer, or pairs miss each other. So it is made only of what all see alike:
live members and the tags that they say. A node changes its health at the end of a round only; a change is
everywhere within a second, long before the next averaging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.errors import PeerError
from tailtrain.worker.gossip.health import may_decide, takes_part
from tailtrain.worker.gossip.members import read_tags

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tailtrain.worker.gossip.members import Member, Tags


@dataclass(frozen=True)
class Roster:
    """Who takes part.

    Attributes:
        tags: of every node that takes part.
        unhealthy: live nodes of this run whose health is too low, and what it is.
        turned_away: live members that are not of this run, and why.
        missing: nodes of the fleet that are not live.
        decides: whether two thirds of the fleet take part.
    """

    tags: Mapping[str, Tags]
    unhealthy: Mapping[str, float]
    turned_away: Mapping[str, str]
    missing: tuple[str, ...]
    decides: bool

    @property
    def participants(self) -> tuple[str, ...]:
        """The nodes that take part, in alphabetical order."""
        return tuple(sorted(self.tags))

    @property
    def healths(self) -> dict[str, float]:
        """Their healths."""
        return {node: tags.health for node, tags in self.tags.items()}

    @property
    def speeds(self) -> dict[str, float]:
        """Their tokens per second."""
        return {node: tags.tokens_per_second for node, tags in self.tags.items()}

    def waits_for(self) -> str:
        """In plain words, why the fleet cannot go on; empty where it can."""
        if self.decides:
            return ""
        parts = [f"{node} is away" for node in self.missing]
        parts += [f"{node} has a health of {health:.2f}" for node, health in sorted(self.unhealthy.items())]
        parts += [f"{node} {why}" for node, why in sorted(self.turned_away.items())]
        return f"two thirds of the nodes are needed: {'; '.join(parts)}"


def roster(
    members: Mapping[str, Member], live: Collection[str], fleet: Collection[str], run_id: str
) -> Roster:
    """Who takes part in a run.

    Args:
        members: what the agent knows.
        live: whom to count on (`Sight.live`).
        fleet: the names of all nodes that the configuration has.
        run_id: of this run, which stands for its code, data set and plan.
    """
    taking: dict[str, Tags] = {}
    unhealthy: dict[str, float] = {}
    turned_away: dict[str, str] = {}
    for node in sorted(live):
        if node not in fleet:
            turned_away[node] = "is not of this fleet"
            continue
        try:
            tags = read_tags(members[node].tags, node)
        except PeerError as error:
            turned_away[node] = f"says what cannot be read: {error.field}"
            continue
        if tags.run != run_id:
            turned_away[node] = f"works on another run, {tags.run}" if tags.run else "works on no run"
        elif not takes_part(tags.health):
            unhealthy[node] = tags.health
        else:
            taking[node] = tags
    return Roster(
        tags=taking,
        unhealthy=unhealthy,
        turned_away=turned_away,
        missing=tuple(sorted(set(fleet) - set(live))),
        decides=may_decide(taking, fleet),
    )


def rendezvous_host(found: Roster) -> str | None:
    """Which node hosts the rendezvous of a strategy that needs one; None where nobody takes part.

    The primary, while it takes part; else the node with most cores, the first by name of several. It changes
    only when the host goes away or a better one returns, not with every change of health.
    """
    return min(
        found.tags,
        key=lambda node: (found.tags[node].role != "primary", -found.tags[node].cores, node),
        default=None,
    )
