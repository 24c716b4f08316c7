"""A part of every layer: tensor parallelism by DTensor (Megatron-LM, arXiv 1909.08053).

Each rank has some of the attention heads and some of the MLP's width; the sums over ranks, two a layer
forward and two back, are torch's, put in by parallelize_module.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from tailtrain.worker.model import next_byte_loss
from tailtrain.worker.sharded.layout import skeleton
from tailtrain.worker.weights import FlatWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.worker.config import ModelConfig
    from tailtrain.worker.sharded.layout import Piece

_COLUMNS = ("attention.project_in", "widen")
_ROWS = ("attention.project_out", "narrow")


class _PartAttention(nn.Module):  # type: ignore[misc]  # torch is untyped where mypy runs
    """Attention over this rank's heads."""

    def __init__(self, width: int, heads: int, parts: int) -> None:
        super().__init__()
        self._head_width = width // heads
        self.project_in = nn.Linear(width, 3 * width // parts, bias=False)
        self.project_out = nn.Linear(width // parts, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        shape = (batch, length, 3, -1, self._head_width)
        query, key, value = self.project_in(x).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project_out(mixed.transpose(1, 2).reshape(batch, length, -1))


class TensorModel:
    """This rank's part of every layer.

    Attributes:
        pieces: its parameters' places in the whole model.
        weights: its parameters as one vector.
        busy: seconds spent in forward and backward passes, with what they wait for others.
    """

    def __init__(
        self, config: ModelConfig, pieces: Sequence[Piece], *, microbatches: int, group: dist.ProcessGroup
    ) -> None:
        self.pieces = tuple(pieces)
        self._microbatches, self._group = microbatches, group
        parts = dist.get_world_size(group)
        module = skeleton(config)
        for block in module.blocks:
            block.attention = _PartAttention(config.width, config.heads, parts)
            block.widen = nn.Linear(config.width, block.widen.out_features // parts, bias=False)
            block.narrow = nn.Linear(block.narrow.in_features // parts, config.width, bias=False)
        module.to_empty(device="cpu")
        self.weights = FlatWeights(module, torch.device("cpu"))
        mesh = DeviceMesh.from_group(group, "cpu")
        gradients = self.weights.views(self.weights.gradients)
        for index, block in enumerate(module.blocks):
            plan = {name: ColwiseParallel() for name in _COLUMNS} | {
                name: RowwiseParallel() for name in _ROWS
            }
            # DTensors made of the vectors' views keep sharing their memory; parallelize_module leaves tensors
            # alone that are divided as it wants them, and adds what exchanges activations.
            for name in plan:
                dimension = 0 if name in _COLUMNS else 1
                linear = block.get_submodule(name)
                _divided(linear, mesh, dimension)
            parallelize_module(block, mesh, plan)
            for name in plan:
                dimension = 0 if name in _COLUMNS else 1
                weight = block.get_submodule(name).weight
                view = gradients[f"blocks.{index}.{name}.weight"]
                weight.grad = DTensor.from_local(view, mesh, [Shard(dimension)], run_check=False)
        self._module = module
        self.busy = 0.0

    def backward(self, windows: Tensor) -> float:
        """One step's gradients, into `weights`; the mean loss on the first rank, 0 elsewhere."""
        began = time.perf_counter()
        total = 0.0
        for part in windows.chunk(self._microbatches):
            loss = next_byte_loss(self._module, part)
            (loss / self._microbatches).backward()
            total += float(loss.detach()) / self._microbatches
        self.busy += time.perf_counter() - began
        return total if dist.get_rank(self._group) == 0 else 0.0

    def share_gradients(self) -> None:
        """Nothing: the gradients of what all ranks hold are the same on all of them."""

    def share_copies(self) -> None:
        """Make what all ranks hold equal again: different processors round differently."""
        views = self.weights.views(self.weights.values)
        source = dist.get_global_rank(self._group, 0)
        divided = tuple(f"{name}.weight" for name in (*_COLUMNS, *_ROWS))
        for name, view in views.items():
            if not name.endswith(divided):
                dist.broadcast(view, source, group=self._group)


def _divided(linear: nn.Module, mesh: DeviceMesh, dimension: int) -> None:
    """Make the weight, which is this rank's part already, a DTensor that says so."""
    local = linear.weight.data
    linear.weight = nn.Parameter(DTensor.from_local(local, mesh, [Shard(dimension)], run_check=False))
