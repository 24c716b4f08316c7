"""Who meets whom for an averaging, and who is let in.

Written against hivemind 1.1.12, which the lock pins. What comes here is msgpack from the network; names are
those of the configuration, for peer ids that libp2p has proved.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hivemind.averaging.key_manager import GroupKeyManager
from hivemind.utils import get_dht_time
from hivemind.utils.serializer import MSGPackSerializer

from tailtrain.errors import PeerError
from tailtrain.worker.peers.admission import Bounds, Request, read_request
from tailtrain.worker.peers.all_reduce import RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hivemind.averaging.group_info import GroupInfo
    from hivemind.dht import DHT
    from hivemind.p2p import PeerID

    from tailtrain.worker.ledger import Contribution
    from tailtrain.worker.peers.origin import Origin
    from tailtrain.worker.reading.shards import Shards

_EMPTY_LOOK_SECONDS = 0.1
_CLOCK_LIMIT_SECONDS = 600.0  # an averaging's wait included; the next round's end follows from arrivals


@dataclass(frozen=True)
class Meeting:
    """Where a node meets those that it averages with, what it brings, and what it accepts.

    Attributes:
        number: the round.
        bits: the place, zeros and ones; only nodes with the same bits and round meet.
        least: with how many nodes the group averages when the time is up.
        most: with how many it does not wait any longer.
        message: this node's request as sent.
        bounds: what others may bring.
        refused: nodes that this one does not average with.
    """

    number: int
    bits: str
    least: int
    most: int
    message: dict[str, Any]
    bounds: Bounds
    refused: frozenset[str]


@dataclass(frozen=True)
class Outcome:
    """What an averaging gives beside the mean.

    Attributes:
        group: what each member brought, by node name.
        moved_bytes: of tensors, sent or received by this node, whichever is more.
    """

    group: dict[str, Contribution]
    moved_bytes: int


class KeyManager(GroupKeyManager):  # type: ignore[misc]  # hivemind is untyped
    """Finds those to ask: no strangers, and nobody who is refused.

    It looks at a bearable rate: hivemind's own asks again at once, and fills a core with it.
    """

    def __init__(self, dht: DHT, prefix: str, bits: str, welcome: Collection[PeerID]) -> None:
        super().__init__(dht, prefix, bits, None)
        self._welcome = welcome

    async def get_averagers(self, group_key: str, only_active: bool) -> Any:  # noqa: FBT001 - hivemind's signature
        """Peers at this place that may be asked, and until when they wait."""
        found = await super().get_averagers(group_key, only_active)
        found = [(peer, expires) for peer, expires in found if peer in self._welcome]
        if not found:
            await asyncio.sleep(_EMPTY_LOOK_SECONDS)
        return found


class Door:
    """Lets in whoever is of this run and brings something acceptable to the meeting at hand.

    Args:
        own: this node's peer id.
        members: node names by peer id, this node included.
        origin: what all must have in common.
        shards: of the run.
    """

    def __init__(self, own: PeerID, members: Mapping[PeerID, str], origin: Origin, shards: Shards) -> None:
        self._own, self._members, self._origin, self._shards = own, members, origin, shards

    def check(self, peer: PeerID, gathered: bytes, meeting: Meeting) -> Request:
        """What a peer says of itself; PeerError if it is unknown or its message is not acceptable."""
        name = self._members.get(peer)
        if name is None:
            raise PeerError("a peer that is not of this run asks to take part", found=str(peer))
        if name in meeting.refused:
            raise PeerError("a peer is left out of this averaging", host=name)
        try:
            _, _, message = MSGPackSerializer.loads(gathered)
            raw = MSGPackSerializer.loads(message)
        except Exception as error:  # msgpack raises several classes on bytes that are not its own
            raise PeerError("a peer's message cannot be read", host=name, found=repr(error)) from error
        if peer == self._own and raw != meeting.message:
            raise PeerError("a group's leader changed this node's message", host=name)
        request = read_request(self._origin.admit(raw, name), self._shards, name)
        work = request.contribution
        if abs(work.arrived - get_dht_time()) > _CLOCK_LIMIT_SECONDS:
            raise PeerError("a peer's clock is wrong", host=name, found=work.arrived)
        if work.node != name or work.round != meeting.number:
            raise PeerError(
                "a peer's message is of another node or round",
                host=name,
                found=f"{work.node}, round {work.round}",
                expected=f"{name}, round {meeting.number}",
            )
        meeting.bounds.check(request.norms, work.tokens, name)
        return request

    def check_group(self, group: GroupInfo, meeting: Meeting) -> dict[PeerID, Request]:
        """What every member says, in order of name.

        Raises:
            RefusedError: a member is not acceptable to this node or to another member.
            PeerError: the group makes no sense.
        """
        if len(group.peer_ids) != len(group.gathered) or len(set(group.peer_ids)) != len(group.peer_ids):
            raise PeerError("a group's messages and members do not match")
        found: dict[PeerID, Request] = {}
        for peer, gathered in zip(group.peer_ids, group.gathered, strict=True):
            try:
                found[peer] = self.check(peer, gathered, meeting)
            except PeerError as error:
                known = frozenset({self._members[peer]} if peer in self._members else ())
                raise RefusedError(str(error), known) from error
        names = {self._members[peer] for peer in found}
        for peer, request in found.items():
            if bad := names & request.refuses:
                who = self._members[peer]
                raise RefusedError(f"{who} does not average with {', '.join(sorted(bad))}", frozenset(bad))
        return dict(sorted(found.items(), key=lambda item: self._members[item[0]]))
