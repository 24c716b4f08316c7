"""hivemind's averager, narrowed to known peers and made exact.

Written against hivemind 1.1.12, which the lock pins. What is changed, and why:

- The all-reduce is exact, and all or nothing (`all_reduce`): the mean is taken when all parts have arrived.
- Where weights travel compressed, and all members began from the same, differences from those travel.
- Only peers that the configuration names may join, be joined, or download the state (libp2p has proved their
  peer ids when the connection opened), and only with a message that passes the checks. Whom one member
  refuses, all leave out, by the word of that member: its next request says so.
- Group size, least group size, round and meeting place are set for each averaging without a new averager
  process.

What comes over the network is protobuf, and msgpack inside it (hivemind.utils.serializer.MSGPackSerializer:
its extension types are tuples, tensor descriptions and table entries); tensors are raw numbers with a dtype
and a shape (hivemind.compression). hivemind pickles between its own processes on this host only.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, AsyncIterator  # noqa: UP035 - hivemind knows streams by this name

import torch
from hivemind.averaging import DecentralizedAverager
from hivemind.averaging.allreduce import AllreduceException
from hivemind.compression import deserialize_torch_tensor
from hivemind.p2p import P2PContext, PeerID
from hivemind.proto import averaging_pb2
from hivemind.utils import MPFuture, get_dht_time
from hivemind.utils.asyncio import aiter_with_timeout, enter_asynchronously
from hivemind.utils.streaming import combine_from_streaming

from tailtrain.errors import PeerError, WorkerError
from tailtrain.worker.peers.all_reduce import ExactRunner, RefusedError, Sender
from tailtrain.worker.peers.compression import form_of, part_bytes
from tailtrain.worker.peers.meeting import Door, KeyManager, Meeting, Outcome
from tailtrain.worker.peers.origin import Origin
from tailtrain.worker.peers.patience import Patience
from tailtrain.worker.peers.reducing import reducer_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hivemind.averaging.group_info import GroupInfo

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.exchange import SharedState
    from tailtrain.worker.peers.admission import Request
    from tailtrain.worker.reading.shards import Shards

_LEAST_SILENCE_SECONDS = 2.0
_MEET_SECONDS = 30.0  # it takes milliseconds; with a tenth of a busy processor, seconds
_SILENCE_PART = 1 / 6  # of the averaging's time-out


class Averager(DecentralizedAverager):  # type: ignore[misc]  # hivemind is untyped
    """Averages one vector with the peers of one run.

    Args:
        config: this node's configuration.
        members: node names by peer id, this node included.
        shards: of the run; messages are checked against them.
        current_state: gives what peers may download: metadata (plain values) and tensors.
        options: of hivemind's averager.

    Attributes:
        base: where weights travel compressed: those that this node began from, shared with its process.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        config: WorkerConfig,
        members: dict[PeerID, str],
        shards: Shards,
        current_state: Callable[[], SharedState],
        **options: Any,
    ) -> None:
        self._members, self._state_source, self._coordination = members, current_state, config.coordination
        self._door = Door(options["dht"].peer_id, members, Origin.of(config), shards)
        self._alone = config.primary if config.centralized else None
        compressed = self._coordination.compression != "none"
        self.base = torch.zeros_like(tensors[0]).share_memory_() if compressed else None
        self._patience = Patience(
            max(_LEAST_SILENCE_SECONDS, config.training.averaging_timeout_seconds * _SILENCE_PART)
        )
        self._meeting: Meeting | None = None
        super().__init__(tensors, **options)

    # In this node's main process.

    def meet(self, meeting: Meeting) -> None:
        """From now on look only for peers that are at this meeting.

        Raises:
            WorkerError: this node's averaging process does not answer.
        """
        future = MPFuture()
        self._outer_pipe.send(("_meet", [], {"meeting": meeting, "future": future}))
        try:
            future.result(timeout=_MEET_SECONDS)
        except FutureTimeoutError:
            waited = f"no answer in {_MEET_SECONDS:g} s"
            raise WorkerError("hivemind's averaging process stands still", found=waited) from None

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
        self._meeting = meeting
        welcome = {peer for peer, name in self._members.items() if name not in meeting.refused}
        matchmaking.group_key_manager = KeyManager(self.dht, self.prefix, meeting.bits, welcome)
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

    async def rpc_join_group(
        self, request: averaging_pb2.JoinRequest, context: P2PContext
    ) -> AsyncIterator[averaging_pb2.MessageFromLeader]:
        """Accept a peer into the group, if it is one of ours and of the same round."""
        meeting = self._meeting
        if meeting is not None and request.group_key == self._matchmaking.group_key_manager.current_key:
            try:
                self._door.check(context.remote_id, request.gather, meeting)
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

    async def _aggregate_with_group(self, group_info: GroupInfo, **_options: Any) -> Outcome:
        """Check every member before any tensor is exchanged, for another node may have led; then average."""
        meeting = self._meeting
        assert meeting is not None  # noqa: S101 - a group comes together at a meeting
        try:
            requests = self._door.check_group(group_info, meeting)
            async with enter_asynchronously(self.get_tensors()) as (vector,):
                moved = await self._average(vector, group_info.group_id, requests)
        except RefusedError as error:
            self._refuse(error)
            raise
        except PeerError as error:
            self._refuse(error)
            raise AllreduceException(str(error)) from error
        group = {self._members[peer]: request.contribution for peer, request in requests.items()}
        return Outcome(group, moved)

    async def _average(self, vector: torch.Tensor, group_id: bytes, requests: dict[PeerID, Request]) -> int:
        """Put the mean of the group's vectors into `vector`; how many bytes were moved for it."""
        coordination, patience = self._coordination, self._patience
        bases = {request.contribution.base for request in requests.values() if request.has_base}
        common = len(bases) == 1 and all(request.has_base for request in requests.values())
        base = self.base if common else None
        form = form_of(coordination.compression, differences=base is not None)
        if base is not None:
            vector.sub_(base)
        names = [self._members[peer] for peer in requests]
        runner = ExactRunner(
            senders=[
                Sender(name, asked.weight, asked.norms.weights if base is None else asked.norms.change)
                for name, asked in zip(names, requests.values(), strict=True)
            ],
            p2p=self._p2p,
            servicer_type=type(self),
            prefix=self.prefix,
            tensors=[vector],
            group_id=group_id,
            ordered_peer_ids=tuple(requests),
            peer_fractions=tuple(reducer_parts(names, coordination.reducers, self._alone)),
            compression=form,
            part_size_bytes=part_bytes(vector.numel(), form),
            sender_timeout=patience.seconds,
            reducer_timeout=2 * patience.seconds,
        )
        self._running_groups[group_id].set_result(runner)
        try:
            await runner.average()
        except Exception as error:
            patience.failed()
            raise runner.failure or AllreduceException(repr(error)) from error
        patience.succeeded(runner.silence)
        if base is not None:
            vector.add_(base)
        self.last_updated = get_dht_time()
        return max(runner.sent_bytes, runner.received_bytes)

    @staticmethod
    def _refuse(error: Exception) -> None:
        print(f"refused: {error}", flush=True)
