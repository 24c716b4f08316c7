"""One stage of a pipeline: some of the model's blocks, run under torch's 1F1B schedule (arXiv 2104.04473)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

from tailtrain.worker.model import VOCABULARY
from tailtrain.worker.sharded.layout import skeleton
from tailtrain.worker.weights import FlatWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.worker.config import ModelConfig
    from tailtrain.worker.sharded.layout import Piece

_EMBEDDING = "embedding.weight"


class StageModule(nn.Module):  # type: ignore[misc]  # torch is untyped where mypy runs
    """Blocks `start` to `stop` of the model, with the embedding on the first stage and the head on the last.

    Parameters have the names that the whole model gives them.
    """

    def __init__(self, config: ModelConfig, start: int, stop: int) -> None:
        super().__init__()
        model = skeleton(config)
        self._first, self._last = start == 0, stop == config.layers
        if self._first or self._last:
            self.embedding = model.embedding
        if self._first:
            self.positions = model.positions
        self.blocks = nn.ModuleDict({str(index): model.blocks[index] for index in range(start, stop)})
        if self._last:
            self.final_norm = model.final_norm
        self.to_empty(device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        """Bytes in on the first stage, logits out on the last; activations between."""
        if self._first:
            x = self.embedding(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks.values():
            x = block(x)
        if self._last:
            x = functional.linear(self.final_norm(x), self.embedding.weight)
        return x


class _TimedStage(PipelineStage):  # type: ignore[misc]  # as above
    """A stage that knows how long it computed; the schedule waits for peers outside of these two."""

    busy = 0.0

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return super().forward_one_chunk(*args, **kwargs)
        finally:
            self.busy += time.perf_counter() - began

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return super().backward_one_chunk(*args, **kwargs)
        finally:
            self.busy += time.perf_counter() - began


class PipelineModel:
    """This rank's stage.

    Attributes:
        pieces: its parameters' places in the whole model.
        weights: its parameters as one vector.
    """

    def __init__(
        self,
        config: ModelConfig,
        pieces: Sequence[Piece],
        *,
        layers: tuple[int, int],
        microbatches: int,
        microbatch_size: int,
        group: dist.ProcessGroup,
    ) -> None:
        self.pieces = tuple(pieces)
        module = StageModule(config, *layers)
        self.weights = FlatWeights(module, torch.device("cpu"))
        self._group = group
        self._index, self._stages = dist.get_rank(group), dist.get_world_size(group)
        self._first, self._last = self._index == 0, self._index == self._stages - 1
        hidden = torch.empty(microbatch_size, config.context, config.width, device="meta", requires_grad=True)
        tokens = torch.empty(microbatch_size, config.context, dtype=torch.long, device="meta")
        logits = torch.empty(microbatch_size, config.context, VOCABULARY, device="meta", requires_grad=True)
        # With the shapes given, the stages do not send each other pickled objects to find them out.
        self._stage = _TimedStage(
            module,
            self._index,
            self._stages,
            torch.device("cpu"),
            input_args=tokens if self._first else hidden,
            output_args=logits if self._last else hidden,
            group=group,
        )
        self._schedule = Schedule1F1B(self._stage, microbatches, loss_fn=_loss)

    @property
    def busy(self) -> float:
        """Seconds that this stage has computed, without waiting for others."""
        return float(self._stage.busy)

    def backward(self, windows: Tensor) -> float:
        """One step's gradients, into `weights`; the mean loss on the last stage, 0 elsewhere."""
        arguments = [windows[:, :-1].contiguous()] if self._first else []
        if not self._last:
            self._schedule.step(*arguments)
            return 0.0
        losses: list[Tensor] = []
        self._schedule.step(
            *arguments, target=windows[:, 1:].contiguous(), losses=losses, return_outputs=False
        )
        return float(torch.stack([loss.detach() for loss in losses]).mean())

    def share_gradients(self) -> None:
        """Add the two halves of the tied embedding's gradient: the first stage's and the head's."""
        if self._stages == 1 or not (self._first or self._last):
            return
        own = self.weights.views(self.weights.gradients)[_EMBEDDING]
        other = torch.empty_like(own)
        peer = dist.get_global_rank(self._group, self._stages - 1 if self._first else 0)
        # The first sends first, so neither waits for the other to receive.
        if self._first:
            dist.send(own, peer, group=self._group)
            dist.recv(other, peer, group=self._group)
            own.add_(other)
        else:
            dist.recv(other, peer, group=self._group)
            dist.send(own, peer, group=self._group)
            # In the same order on both sides, so both get the same bits.
            own.copy_(other.add_(own))

    def share_copies(self) -> None:
        """Make the copies of parameters that several ranks hold equal again."""
        if self._stages == 1 or not (self._first or self._last):
            return
        own = self.weights.views(self.weights.values)[_EMBEDDING]
        if self._first:
            dist.send(own, dist.get_global_rank(self._group, self._stages - 1), group=self._group)
        else:
            dist.recv(own, dist.get_global_rank(self._group, 0), group=self._group)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
