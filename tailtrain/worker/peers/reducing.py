"""The parts of the vector that this node averages for all."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tailtrain.errors import PeerError
from tailtrain.worker.peers.compression import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hivemind.compression import CompressionBase
    from hivemind.proto import runtime_pb2

_SLACK = 1.01  # what is said and what is sent are rounded differently


def reducer_parts(members: Sequence[str], reducers: Mapping[str, float], alone: str | None) -> list[float]:
    """The part of the vector that each member averages for all: the same on all members.

    Args:
        members: the nodes that average.
        reducers: the configured part by node; of none for equal parts. Where members are missing, the others
            share what is left in the same proportion; where all reducers are, all members share equally.
        alone: the node that reduces everything, in centralized coordination.
    """
    if alone is not None:
        return [float(member == alone) for member in members]
    parts = [reducers.get(member, 0.0) for member in members]
    whole = math.fsum(parts)
    return [part / whole for part in parts] if whole > 0 else [1.0 / len(members)] * len(members)


class Tally:
    """Holds the parts that come from a node against the norm that they may have together."""

    def __init__(self, norm: float) -> None:
        self._left = (norm * _SLACK) ** 2

    def take(self, part: torch.Tensor) -> None:
        """PeerError if a value is not finite, or all parts together are larger than was said."""
        norm = float(torch.linalg.vector_norm(part))
        if not math.isfinite(norm):
            raise PeerError("a part has values that are not finite")
        self._left -= norm * norm
        if self._left < 0:
            raise PeerError("what arrives is larger than what was said")


@dataclass
class _Slot:
    """One part: what has arrived of it, by sender, and the answer once all have."""

    answer: asyncio.Future[tuple[runtime_pb2.Tensor, torch.Tensor]]
    arrived: dict[int, torch.Tensor] = field(default_factory=dict)
    given: int = 0


class PartReducer:
    """Averages part after part of all senders.

    A part is summed in the order of the senders, in float64, whatever the order in which they arrive: the
    mean is the same to the bit each time.

    Args:
        shapes: of the parts.
        weights: of the senders, in their order.
        form: how the answers travel. All take the answer in that form, this node too.

    Attributes:
        num_parts: how many parts there are.
        finished: set when there is nothing more to come.
    """

    def __init__(self, shapes: Sequence[torch.Size], weights: Sequence[float], form: CompressionBase) -> None:
        self.shapes, self._weights, self._form = tuple(shapes), tuple(weights), form
        self.num_parts = len(self.shapes)
        self.finished = asyncio.Event()
        self._slots: dict[int, _Slot] = {}

    async def add(
        self, sender: int, index: int, part: torch.Tensor
    ) -> tuple[runtime_pb2.Tensor, torch.Tensor]:
        """Bring a sender's part; the answer, as sent and as read, when all senders have brought theirs."""
        loop = asyncio.get_running_loop()
        slot = self._slots.setdefault(index, _Slot(loop.create_future()))
        if self.finished.is_set():
            raise asyncio.CancelledError
        slot.arrived[sender] = part
        if len(slot.arrived) == len(self._weights):
            parts = [slot.arrived.pop(place) for place in range(len(self._weights))]
            answer = await loop.run_in_executor(None, self._answer, parts)
            if not slot.answer.done():
                slot.answer.set_result(answer)
        answer = await asyncio.shield(slot.answer)
        slot.given += 1
        if slot.given == len(self._weights):
            self._slots.pop(index, None)
        return answer

    def _answer(self, parts: Sequence[torch.Tensor]) -> tuple[runtime_pb2.Tensor, torch.Tensor]:
        total = torch.zeros(parts[0].shape, dtype=torch.float64)
        for part, weight in zip(parts, self._weights, strict=True):
            total.add_(part, alpha=weight)
        message = pack(total.div_(math.fsum(self._weights)).float(), self._form)
        return message, unpack(message, self._form, parts[0].shape)

    def finalize(self) -> None:
        """Nothing more will come: whoever waits is told."""
        self.finished.set()
        for slot in self._slots.values():
            slot.answer.cancel()
        self._slots.clear()
