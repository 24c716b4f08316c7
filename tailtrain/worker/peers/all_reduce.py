"""The mean of a group's vectors, exact and all or nothing: hivemind's all-reduce, narrowed.

Written against hivemind 1.1.12, which the lock pins. What is changed, and why:

- The mean itself is sent back, not its difference from what a node sent: `t + (mean - t)` rounds differently
  on each node, and nodes that should agree would differ in their last bits. Where parts travel compressed,
  all take the answer as it was sent, the node that made it too.
- If a peer fails in between, hivemind averages the rest of the vector without it, or leaves parts as they
  were, differently on each node. Here whoever loses a peer gives up at once, which the others notice and do
  too: it fails for all.
- What arrives is checked before it enters a mean or a vector: form, size, weight, finite values, and that
  it is no larger than its sender said (`admission`).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, AsyncIterator  # noqa: UP035 - hivemind knows streams by this name

from hivemind.averaging.allreduce import AllreduceException, AllReduceRunner
from hivemind.proto import averaging_pb2
from hivemind.utils.asyncio import aiter_with_timeout, attach_event_on_finished

from tailtrain.errors import PeerError
from tailtrain.worker.peers.compression import unpack
from tailtrain.worker.peers.reducing import PartReducer, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from hivemind.p2p import PeerID


class RefusedError(AllreduceException):  # type: ignore[misc]  # hivemind is untyped
    """An averaging ended because of what nodes sent.

    Attributes:
        nodes: who is left out of the next try.
    """

    def __init__(self, message: str, nodes: frozenset[str]) -> None:
        super().__init__(message, nodes)  # both, or it could not be sent between processes
        self.nodes = nodes

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Sender:
    """What a member has said that it will send: its name, weight and norm."""

    name: str
    weight: float
    norm: float


class ExactRunner(AllReduceRunner):  # type: ignore[misc]  # hivemind is untyped
    """One all-reduce.

    Args:
        senders: the members, in the order of `ordered_peer_ids`.
        options: of hivemind's runner.

    Attributes:
        failure: why it failed, where that is a peer's doing.
        sent_bytes: of tensors, to others.
        received_bytes: of tensors, from others.
        silence: the longest time that a peer was silent in between, in seconds.
    """

    def __init__(self, *, senders: Sequence[Sender], **options: Any) -> None:
        own = options["ordered_peer_ids"].index(options["p2p"].peer_id)
        super().__init__(weight=senders[own].weight, **options)
        self._senders, self._own = tuple(senders), own
        container = self.tensor_part_container
        container.return_deltas = False
        self._form = container.compression
        self._parts = [
            [part for part, _ in parts] for parts in container._input_parts_by_peer  # noqa: SLF001 - said nowhere else
        ]  # fmt: skip
        unused, weights = self.tensor_part_reducer, [sender.weight for sender in senders]
        unused.finished.set()  # or it would warn that nothing came
        self.tensor_part_reducer: PartReducer = PartReducer(
            [part.shape for part in self._parts[own]], weights, self._form
        )
        self.failure: AllreduceException | None = None
        self.sent_bytes = self.received_bytes = 0
        self.silence = 0.0

    async def average(self) -> None:
        """Put the mean into the tensors, part by part, so that no second vector is needed.

        Raises:
            AllreduceException: a peer failed, or sent what is not acceptable; the tensors are of no use then.
        """
        tasks = [
            asyncio.create_task(self._communicate_with_peer(peer))
            for peer, parts in zip(self.ordered_peer_ids, self._parts, strict=True)
            if parts
        ]
        missing = asyncio.create_task(self._handle_missing_senders()) if self._parts[self._own] else None
        pending: set[asyncio.Future[Any]] = set(tasks)
        try:
            while pending and not self._future.done():
                _, pending = await asyncio.wait({*pending, self._future}, return_when=asyncio.FIRST_COMPLETED)
                pending.discard(self._future)
            if self.failure is not None:
                raise self.failure
            self.finalize()
        finally:
            for task in (*tasks, missing):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*filter(None, (*tasks, missing)), return_exceptions=True)
            self.finalize(cancel=True)

    async def _communicate_with_peer(self, peer_id: PeerID) -> None:
        """Send a peer its parts of this node's vector, and take their means."""
        index = self.ordered_peer_ids.index(peer_id)
        try:
            if index == self._own:
                for number, part in enumerate(self.parts_for_local_averaging):
                    _, mean = await self.tensor_part_reducer.add(index, number, part)
                    part.copy_(mean)
            else:
                await self._exchange(peer_id, index)
        except Exception as error:
            self._give_up(index, error)
            raise

    async def _exchange(self, peer_id: PeerID, index: int) -> None:
        sent = asyncio.Event()
        stream = await self._get_peer_stub(peer_id).rpc_aggregate_part(
            attach_event_on_finished(self._generate_input_for_peer(index), sent)
        )
        if self.should_delay_results(self.peer_id):
            await sent.wait()
        # A mean is no larger than the largest vector in it.
        tally = Tally(max(sender.norm for sender in self._senders))
        parts = self._parts[index]
        number = 0
        async for message in self._timed(aiter_with_timeout(stream, self.reducer_timeout)):
            if message.code != averaging_pb2.AVERAGED_PART:
                raise AllreduceException(f"it answers {averaging_pb2.MessageCode.Name(message.code)}")
            if number == len(parts):
                raise PeerError("a peer sends too many parts")
            part = parts[number]
            part.copy_(await self._unpacked(message.tensor_part, part.shape, tally))
            number += 1
        if number != len(parts):
            raise AllreduceException(f"{number} of {len(parts)} parts came back")

    async def _unpacked(self, message: Any, shape: torch.Size, tally: Tally) -> torch.Tensor:
        self.received_bytes += len(message.buffer)

        def read() -> torch.Tensor:
            part = unpack(message, self._form, shape)
            tally.take(part)
            return part

        return await asyncio.get_running_loop().run_in_executor(None, read)

    async def _generate_input_for_peer(self, peer_index: int) -> AsyncIterator[averaging_pb2.AveragingData]:
        async for message in super()._generate_input_for_peer(peer_index):
            self.sent_bytes += len(message.tensor_part.buffer)
            yield message

    async def _accumulate_parts_streaming(
        self, stream: AsyncIterator[averaging_pb2.AveragingData], sender_index: int
    ) -> AsyncIterator[averaging_pb2.AveragingData]:
        """Take a peer's parts, and answer each with the mean."""
        try:
            async for answer in self._means(stream, sender_index):
                yield answer
        except Exception as error:
            self._give_up(sender_index, error)
            raise

    async def _means(
        self, stream: AsyncIterator[averaging_pb2.AveragingData], index: int
    ) -> AsyncIterator[averaging_pb2.AveragingData]:
        sender, reducer = self._senders[index], self.tensor_part_reducer
        tally = Tally(sender.norm)
        number = 0
        async for message in self._timed(stream):
            if number == reducer.num_parts or message.weight != sender.weight:
                raise PeerError("a peer sends too many parts, or with another weight than it said")
            part = await self._unpacked(message.tensor_part, reducer.shapes[number], tally)
            answer, _ = await reducer.add(index, number, part)
            number += 1
            self.sent_bytes += len(answer.buffer)
            yield averaging_pb2.AveragingData(code=averaging_pb2.AVERAGED_PART, tensor_part=answer)
        if number != reducer.num_parts:
            raise AllreduceException(f"{number} of {reducer.num_parts} parts came")

    async def _timed(self, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The same, and how long the peer was silent before each message."""
        since = time.monotonic()
        async for message in stream:
            self.silence = max(self.silence, time.monotonic() - since)
            yield message
            since = time.monotonic()

    async def _ban_sender(self, peer_id: PeerID) -> None:
        """A peer failed: hivemind would go on without it; here nobody does."""
        self._give_up(
            self.sender_peer_ids.index(peer_id), AllreduceException("it did not send all its parts")
        )

    def _give_up(self, index: int, error: Exception) -> None:
        """A peer failed: end at once, which ends the streams to all others, so that they end too."""
        if self._future.done():
            return
        name = self._senders[index].name
        if isinstance(error, PeerError):
            self.failure = RefusedError(f"{name}: {error}", frozenset({name}))
        else:
            reason = "it fell silent" if isinstance(error, TimeoutError) else str(error) or repr(error)
            self.failure = AllreduceException(f"{name}: a peer failed while averaging: {reason[:200]}")
        self.finalize(exception=self.failure)
        self._future.exception()  # it is told by the averaging that ends; asyncio need not repeat it
