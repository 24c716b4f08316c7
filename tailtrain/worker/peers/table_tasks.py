"""What this node runs inside hivemind's table process, which has the daemon and the table's protocol.

hivemind sends these functions there by name (DHT.run_coroutine), so they stand at a module's top level.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2
from hivemind.utils import get_dht_time
from hivemind.utils.multiaddr import Multiaddr

if TYPE_CHECKING:
    from hivemind import DHT
    from hivemind.dht.node import DHTNode

_ANSWER_SECONDS = 3.0


class ClockReading(NamedTuple):
    """What a peer's clock says.

    Attributes:
        offset: seconds that it is ahead of this node's.
        error: by how many seconds that may be wrong.
    """

    offset: float
    error: float


async def clock_offset(_dht: DHT, node: DHTNode, peer_id: bytes) -> ClockReading | None:
    """How far a peer's clock is ahead, from a ping; None if it does not answer.

    Half of the round trip is taken off, as NTP does; the error is at most the other half.
    """
    with suppress(Exception):
        request = dht_pb2.PingRequest(peer=node.protocol.node_info)
        began = get_dht_time()
        answer = await node.protocol.get_stub(PeerID(peer_id)).rpc_ping(request, timeout=_ANSWER_SECONDS)
        ended = get_dht_time()
        return ClockReading(answer.dht_time - (began + ended) / 2, (ended - began) / 2)
    return None


async def introduce(_dht: DHT, node: DHTNode, targets: list[tuple[bytes, str, bool]]) -> None:
    """Dial each peer (id, address, whether it answers requests) and exchange table entries.

    A client-mode peer answers no requests, but is dialled too: it may be in libp2p's back-off after it failed
    to reach this node, and uses the connection that this node opens.
    """

    async def one(peer: PeerID, address: str, answers: bool) -> None:  # noqa: FBT001 - private and local
        with suppress(Exception):  # a peer that is not up yet is asked again
            # There is no public way to name a peer's address after the start.
            connecting = node.p2p._client.connect(peer, [Multiaddr(address)])  # noqa: SLF001
            await asyncio.wait_for(connecting, _ANSWER_SECONDS)
            if answers:
                await node.protocol.call_ping(peer)

    await asyncio.gather(*(one(PeerID(peer), address, answers) for peer, address, answers in targets))
