"""What each node tells all others about itself, and what follows from it.

Nodes keep one announcement each in hivemind's distributed hash table, stamped with what they must have in
common (`origin`), so another run never mixes in. From the announcements a node learns the present round and
when its training ends (the round clock), who takes part, who is ahead, and that the run has finished. All
functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from tailtrain.errors import PeerError
from tailtrain.worker.ledger import Fields

Phase = Literal["ready", "training", "paused", "finished"]

READY_SECONDS = 20.0
"""A node that waits repeats its announcement every few seconds; one older than this is not live."""

LATE_SECONDS = 10.0
"""This long after a round's end every live node has averaged, or has said that it is paused."""


@dataclass(frozen=True)
class Announcement:
    """One node's word on itself.

    Attributes:
        node: its name.
        phase: ready (waits for the clock), training (works on `round`), paused (waits for the quorum, in
            the averaging of `round`) or finished.
        committed: the last round it has committed, -1 before the first.
        digest: SHA-256 of the weights after that round.
        round: the round it works on; -1 while ready.
        ends: when training of that round ends (unix seconds); 0 while ready.
        total_tokens: what it knows the fleet to have committed.
        tokens_per_second: its speed in the last round.
        sent: its clock when it said this (unix seconds).
    """

    node: str
    phase: Phase
    committed: int
    digest: str
    round: int
    ends: float
    total_tokens: int
    tokens_per_second: float
    sent: float

    def to_message(self) -> dict[str, Any]:
        """As stored (plain values only), without the stamp."""
        return asdict(self)

    @property
    def in_round(self) -> bool:
        """Whether it works on a round that others can join."""
        return self.phase in {"training", "paused"}


def read_announcement(raw: Any, name: str) -> Announcement:
    """Check and read what stands under `name` in the table; its stamp is off already.

    Raises:
        PeerError: it is not an announcement of that node.
    """
    if not isinstance(raw, dict):
        raise PeerError("an announcement is not a set of fields", host=name, found=repr(raw)[:80])
    fields = Fields(raw, name)
    phase = fields.text("phase")
    if phase not in get_args(Phase):
        raise PeerError("a peer's message is not acceptable", host=name, field="phase", found=phase)
    announcement = Announcement(
        node=fields.text("node"),
        phase=phase,  # type: ignore[arg-type]  # checked above
        committed=fields.whole("committed", -1),
        digest=fields.digest("digest"),
        round=fields.whole("round", -1),
        ends=fields.number("ends"),
        total_tokens=fields.whole("total_tokens"),
        tokens_per_second=fields.number("tokens_per_second"),
        sent=fields.number("sent"),
    )
    fields.end()
    if announcement.node != name:
        raise PeerError("a node announces another's name", host=name, found=announcement.node)
    return announcement


View = Mapping[str, Announcement]


def ready_nodes(view: View, now: float) -> set[str]:
    """Nodes that wait for the clock to start, and said so lately."""
    return {name for name, said in view.items() if said.phase == "ready" and now - said.sent < READY_SECONDS}


def nodes_in_round(view: View, number: int, now: float) -> set[str]:
    """Nodes that take part in this round: one whose averaging is slow keeps saying that it is paused."""
    return {
        name
        for name, said in view.items()
        if said.in_round
        and said.round == number
        and (now < said.ends + LATE_SECONDS or (said.phase == "paused" and now - said.sent < READY_SECONDS))
    }


def leader_of(view: View, serving: Iterable[str], now: float) -> Announcement | None:
    """The node to follow: of those that can serve their state, the one furthest on.

    Args:
        view: what is announced.
        serving: the nodes that can serve their state (in centralized coordination the primary alone).
        now: this node's clock.
    """
    candidates = set(serving)
    live = [
        said
        for said in view.values()
        if said.node in candidates
        and (said.phase == "finished" or said.node in nodes_in_round(view, said.round, now))
    ]
    return max(
        live, key=lambda said: (said.phase == "finished", said.round, said.committed, said.node), default=None
    )
