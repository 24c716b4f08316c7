"""hivemind's averager, narrowed to known peers and made exact.

Written against hivemind 1.1.12, which the lock pins. What is changed, and why:

- The all-reduce is exact, and all or nothing (`all_reduce`): nothing is written until all parts have arrived.
- Only peers that the configuration names may join, be joined, or download the state (libp2p has proved their
  peer ids when the connection opened), and only with a message that passes the checks.
- Group size, least group size, round and meeting place are set for each averaging without a new averager
  process.

What comes over the network is protobuf, and msgpack inside it (hivemind.utils.serializer.MSGPackSerializer:
its extension types are tuples, tensor descriptions and table entries); tensors are raw numbers with a dtype
and a shape (hivemind.compression). hivemind pickles between its own processes on this host only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, AsyncIterator  # noqa: UP035 - hivemind knows streams by this name

from hivemind.averaging import DecentralizedAverager
from hivemind.averaging.allreduce import AllreduceException
from hivemind.averaging.key_manager import GroupKeyManager
from hivemind.compression import deserialize_torch_tensor
from hivemind.p2p import P2PContext, PeerID
from hivemind.proto import averaging_pb2
from hivemind.utils import MPFuture, get_dht_time
from hivemind.utils.asyncio import aiter_with_timeout, as_aiter, azip
from hivemind.utils.streaming import combine_from_streaming

from tailtrain.errors import PeerError
from tailtrain.worker.all_reduce import ExactRunner
from tailtrain.worker.ledger import Contribution, read_contribution

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from hivemind.averaging.group_info import GroupInfo

    from tailtrain.worker.exchange import SharedState
    from tailtrain.worker.shards import Shards

_EMPTY_LOOK_SECONDS = 0.1
_CLOCK_LIMIT_SECONDS = 600.0  # an averaging's wait included; the next round's end follows from arrivals


@dataclass(frozen=True)
class Meeting:
    """Where a node meets those that it averages with.

    Attributes:
        number: the round.
        bits: the place, zeros and ones; only nodes with the same bits and round meet.
        least: with how many nodes the group averages when the time is up.
        most: with how many it does not wait any longer.
    """

    number: int
    bits: str
    least: int
    most: int


class _PacedKeyManager(GroupKeyManager):  # type: ignore[misc]  # hivemind is untyped
    """Looks for peers at a bearable rate: hivemind's own asks again at once, and fills a core with it."""

    async def get_averagers(self, group_key: str, only_active: bool) -> Any:  # noqa: FBT001 - hivemind's signature
        found = await super().get_averagers(group_key, only_active)
        if not found:
            await asyncio.sleep(_EMPTY_LOOK_SECONDS)
        return found


class Averager(DecentralizedAverager):  # type: ignore[misc]  # hivemind is untyped
    """Averages one vector with the peers of one run.

    Args:
        members: node names by peer id, this node included.
        shards: of the run; messages are checked against them.
        current_state: gives what peers may download: metadata (plain values) and tensors.
        options: of hivemind's averager.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        members: dict[PeerID, str],
        shards: Shards,
        current_state: Callable[[], SharedState],
        **options: Any,
    ) -> None:
        self._members, self._shards, self._state_source = members, shards, current_state
        self._round = -1
        super().__init__(tensors, **options)

    # In this node's main process.

    def meet(self, meeting: Meeting) -> None:
        """From now on look only for peers that are at this meeting."""
        future = MPFuture()
        self._outer_pipe.send(("_meet", [], {"meeting": meeting, "future": future}))
        future.result()

    def download_state(self, peer: PeerID, timeout: float) -> tuple[Any, list[torch.Tensor]] | None:
        """The committed state of a peer as it sent it, unchecked; None if it does not serve one."""
        future = MPFuture()
        self._outer_pipe.send(("_download_state", [], {"peer": peer.to_bytes(), "future": future}))
        try:
            return future.result(timeout=timeout)  # type: ignore[no-any-return]
        finally:
            if not future.done():
                future.cancel()

    def get_current_state(self) -> tuple[Any, Sequence[torch.Tensor], None]:
        """What a peer downloads; runs in a thread of the main process."""
        metadata, tensors = self._state_source()
        return metadata, tensors, None

    # In the averager's process.

    async def _meet(self, meeting: Meeting, future: MPFuture) -> None:
        matchmaking = self._matchmaking
        self._round = meeting.number
        matchmaking.group_key_manager = _PacedKeyManager(self.dht, self.prefix, meeting.bits, None)
        matchmaking.min_group_size = meeting.least
        matchmaking.target_group_size = meeting.most
        matchmaking.potential_leaders.target_group_size = meeting.most
        future.set_result(None)

    async def _download_state(self, peer: bytes, future: MPFuture) -> None:
        try:
            stub = self.get_stub(self._p2p, PeerID(peer), namespace=self.prefix)
            stream = await stub.rpc_download_state(averaging_pb2.DownloadRequest())
            metadata: Any = None
            parts: list[Any] = []
            tensors: list[torch.Tensor] = []
            async for message in aiter_with_timeout(stream, timeout=self.next_chunk_timeout):
                if message.metadata:
                    metadata = self.serializer.loads(message.metadata)
                if message.tensor_part.dtype and parts:  # a dtype marks the first part of the next tensor
                    tensors.append(deserialize_torch_tensor(combine_from_streaming(parts)))
                    parts = []
                parts.append(message.tensor_part)
            if parts:
                tensors.append(deserialize_torch_tensor(combine_from_streaming(parts)))
            future.set_result(None if metadata is None else (metadata, tensors))
        except Exception as error:  # noqa: BLE001 - whatever it was, the waiting process is told
            if not future.done():
                future.set_exception(PeerError("a peer's state did not arrive", found=repr(error)))

    def _check(self, peer: PeerID, gathered: bytes) -> Contribution:
        """What a peer says of itself; PeerError if it is unknown or its message is not acceptable."""
        name = self._members.get(peer)
        if name is None:
            raise PeerError("a peer that is not of this run asks to take part", found=str(peer))
        try:
            _, _, message = self.serializer.loads(gathered)
            contribution = read_contribution(self.serializer.loads(message), self._shards)
        except PeerError:
            raise
        except Exception as error:  # msgpack raises several classes on bytes that are not its own
            raise PeerError("a peer's message cannot be read", host=name, found=repr(error)) from error
        if abs(contribution.arrived - get_dht_time()) > _CLOCK_LIMIT_SECONDS:
            raise PeerError("a peer's clock is wrong", host=name, found=contribution.arrived)
        if contribution.node != name or contribution.round != self._round:
            raise PeerError(
                "a peer's message is of another node or round",
                host=name,
                found=f"{contribution.node}, round {contribution.round}",
                expected=f"{name}, round {self._round}",
            )
        return contribution

    def _check_group(self, group_info: GroupInfo) -> None:
        """Every member of a group: PeerError if one is not acceptable, or takes part twice."""
        if len(group_info.peer_ids) != len(group_info.gathered):
            raise PeerError("a group's messages and members do not match")
        for peer, gathered in zip(group_info.peer_ids, group_info.gathered, strict=True):
            self._check(peer, gathered)
        if len(set(group_info.peer_ids)) != len(group_info.peer_ids):
            raise PeerError("a node takes part twice")

    async def rpc_join_group(
        self, request: averaging_pb2.JoinRequest, context: P2PContext
    ) -> AsyncIterator[averaging_pb2.MessageFromLeader]:
        """Accept a peer into the group, if it is one of ours and of the same round."""
        if request.group_key == self._matchmaking.group_key_manager.current_key:
            try:
                self._check(context.remote_id, request.gather)
            except PeerError as error:
                self._refuse(error)
                yield averaging_pb2.MessageFromLeader(code=averaging_pb2.PROTOCOL_VIOLATION)
                return
        async for response in super().rpc_join_group(request, context):
            yield response

    async def rpc_download_state(
        self, request: averaging_pb2.DownloadRequest, context: P2PContext
    ) -> AsyncIterator[averaging_pb2.DownloadData]:
        """Send the committed state to a peer, if it is one of ours."""
        if context.remote_id not in self._members:
            self._refuse(
                PeerError("a peer that is not of this run asks for the state", found=str(context.remote_id))
            )
            return
        async for response in super().rpc_download_state(request, context):
            yield response

    async def _aggregate_with_group(self, group_info: GroupInfo, min_vector_size: int, **options: Any) -> Any:
        """Check every member before any tensor is exchanged: the group may have been led by another node."""
        try:
            self._check_group(group_info)
        except PeerError as error:
            self._refuse(error)
            raise AllreduceException(str(error)) from error
        return await super()._aggregate_with_group(group_info, min_vector_size, **options)

    async def _run_allreduce_inplace_(
        self,
        tensors: Sequence[torch.Tensor],
        group_info: GroupInfo,
        group_id: bytes | None = None,
        **options: Any,
    ) -> None:
        group_id = group_info.group_id if group_id is None else group_id
        runner = ExactRunner(
            p2p=self._p2p,
            servicer_type=type(self),
            prefix=self.prefix,
            tensors=tensors,
            group_id=group_id,
            ordered_peer_ids=group_info.peer_ids,
            **options,
        )
        self._running_groups[group_id].set_result(runner)
        means = [mean async for _, mean in azip(as_aiter(*tensors), runner)]
        if runner.tensor_part_container.failed_size:
            raise AllreduceException("a peer failed while averaging")
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.copy_(mean)
        self.last_updated = get_dht_time()

    @staticmethod
    def _refuse(error: Exception) -> None:
        print(f"refused: {error}", flush=True)
