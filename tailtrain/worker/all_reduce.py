"""The mean of a group's vectors, exact and all or nothing: hivemind's all-reduce, narrowed.

Written against hivemind 1.1.12, which the lock pins. What is changed, and why:

- The mean itself is sent back, not its difference from what a node sent: `t + (mean - t)` rounds differently
  on each node, and nodes that should agree would differ in their last bits.
- If a peer fails in between, hivemind averages the rest of the vector without it, or leaves parts as they
  were, differently on each node. Here whoever loses a peer gives up at once, which the others notice and do
  too: it fails for all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, AsyncIterator  # noqa: UP035 - hivemind knows streams by this name

from hivemind.averaging.allreduce import AllreduceException, AllReduceRunner
from hivemind.averaging.partition import BannedException
from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor
from hivemind.proto import averaging_pb2
from hivemind.utils.asyncio import amap_in_executor

if TYPE_CHECKING:
    from hivemind.p2p import PeerID


class ExactRunner(AllReduceRunner):  # type: ignore[misc]  # hivemind is untyped
    """An all-reduce whose reducers answer with the mean instead of the difference from it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tensor_part_container.return_deltas = False

    async def _communicate_with_peer(self, peer_id: PeerID) -> None:
        if peer_id == self.peer_id:
            await self._average_own_parts()
            return
        try:
            await super()._communicate_with_peer(peer_id)
        except Exception:
            self._give_up()
            raise

    async def _average_own_parts(self) -> None:
        peer_index = self.ordered_peer_ids.index(self.peer_id)
        sender_index = self.sender_peer_ids.index(self.peer_id)
        for part_index, part in enumerate(self.parts_for_local_averaging):
            mean = await self.tensor_part_reducer.accumulate_part(
                sender_index, part_index, part, weight=self.weight
            )
            self.tensor_part_container.register_processed_part(peer_index, part_index, mean)

    async def _ban_sender(self, peer_id: PeerID) -> None:
        await super()._ban_sender(peer_id)
        self._give_up()

    def _give_up(self) -> None:
        """A peer failed: end at once, which ends the streams to all others, so that they end too."""
        if not self._future.done():
            self.finalize(exception=AllreduceException("a peer failed while averaging"))
            self._future.exception()  # it is told by the averaging that ends; asyncio need not repeat it

    async def _accumulate_parts_streaming(
        self, stream: AsyncIterator[averaging_pb2.AveragingData], sender_index: int
    ) -> AsyncIterator[averaging_pb2.AveragingData]:
        part_index = 0
        try:
            loop = asyncio.get_running_loop()
            async for part, weight, compression in amap_in_executor(
                lambda msg: (
                    deserialize_torch_tensor(msg.tensor_part),
                    msg.weight,
                    msg.tensor_part.compression,
                ),
                stream,
                max_prefetch=self.tensor_part_container.prefetch,
            ):
                try:
                    mean = await self.tensor_part_reducer.accumulate_part(
                        sender_index, part_index, part, weight=weight
                    )
                except BannedException:
                    break
                part_index += 1
                answer = await loop.run_in_executor(None, serialize_torch_tensor, mean, compression)
                yield averaging_pb2.AveragingData(code=averaging_pb2.AVERAGED_PART, tensor_part=answer)
        finally:
            if part_index != self.tensor_part_reducer.num_parts:
                await self._ban_sender(self.sender_peer_ids[sender_index])
