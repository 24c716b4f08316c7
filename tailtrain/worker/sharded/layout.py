"""Where each rank's parameters lie in the whole model.

A rank holds some tensors whole (its pipeline stage), or a part of each (tensor parallelism). Either way a
tensor of a rank is some blocks of the whole tensor, one below the other; checkpoints and transfers need no
more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tailtrain.worker.model import ByteTransformer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.worker.config import ModelConfig

Block = tuple[slice, ...]
_INIT_STD = 0.02


@dataclass(frozen=True)
class Piece:
    """A rank's part of one tensor.

    Attributes:
        name: the parameter, as the whole model names it.
        shape: of the part.
        blocks: where it lies in the whole tensor; the part is these, one below the other.
        copy: whether another rank holds the same and answers for it.
    """

    name: str
    shape: tuple[int, ...]
    blocks: tuple[Block, ...]
    copy: bool = False

    @property
    def numel(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def splits(self) -> list[int]:
        """Rows of each block in the part."""
        share = self.shape[0] // len(self.blocks)
        return [share] * len(self.blocks)


@dataclass(frozen=True)
class WholeModel:
    """All parameters, in the order of worker.weights.FlatWeights: matrices first, then by name."""

    shapes: dict[str, tuple[int, ...]]

    @property
    def parameters(self) -> int:
        """How many there are."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def offsets(self) -> dict[str, int]:
        """Where each begins in the flat vector."""
        offsets, at = {}, 0
        for name, shape in self.shapes.items():
            offsets[name] = at
            at += math.prod(shape)
        return offsets


def flat_order(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Sorted as FlatWeights sorts parameters."""
    return dict(sorted(shapes.items(), key=lambda item: (len(item[1]) == 1, item[0])))


def skeleton(config: ModelConfig) -> ByteTransformer:
    """The model without values: its tensors take no memory."""
    with torch.device("meta"):
        return ByteTransformer(config)


def whole_model(config: ModelConfig) -> WholeModel:
    """All parameters of the model."""
    named = skeleton(config).named_parameters()
    return WholeModel(flat_order({name: tuple(parameter.shape) for name, parameter in named}))


def stage_pieces(whole: WholeModel, layers: int, start: int, stop: int) -> tuple[Piece, ...]:
    """What the stage of layers `start` to `stop` holds; the tied embedding is on the first and the last."""
    first, last = start == 0, stop == layers
    pieces = []
    for name, shape in whole.shapes.items():
        part, _, rest = name.partition(".")
        held = {
            "embedding": first or last,
            "positions": first,
            "blocks": part == "blocks" and start <= int(rest.partition(".")[0]) < stop,
            "final_norm": last,
        }[part]
        if held:
            copy = part == "embedding" and not first
            pieces.append(Piece(name, shape, (tuple(slice(0, size) for size in shape),), copy))
    return tuple(pieces)


def tensor_pieces(whole: WholeModel, part: int, parts: int) -> tuple[Piece, ...]:
    """What rank `part` of `parts` holds under tensor parallelism (Megatron-LM, arXiv 1909.08053).

    The first matrix of attention and of the MLP is divided by rows, the second by columns; queries, keys and
    values are each divided by heads. All else is held by every rank.
    """
    pieces = []
    for name, shape in whole.shapes.items():
        if name.endswith(("project_in.weight", "widen.weight")):
            groups = 3 if name.endswith("project_in.weight") else 1
            rows = shape[0] // groups // parts
            starts = [group * shape[0] // groups + part * rows for group in range(groups)]
            blocks: tuple[Block, ...] = tuple((slice(at, at + rows), slice(0, shape[1])) for at in starts)
            pieces.append(Piece(name, (rows * groups, shape[1]), blocks))
        elif name.endswith(("project_out.weight", "narrow.weight")):
            columns = shape[1] // parts
            block = (slice(0, shape[0]), slice(part * columns, (part + 1) * columns))
            pieces.append(Piece(name, (shape[0], columns), (block,)))
        else:
            pieces.append(Piece(name, shape, (tuple(slice(0, size) for size in shape),), part > 0))
    return tuple(pieces)


def take(whole: torch.Tensor, piece: Piece) -> torch.Tensor:
    """A rank's part of a whole tensor."""
    return torch.cat([whole[block] for block in piece.blocks])


def first_weights(config: ModelConfig, seed: int, pieces: Sequence[Piece]) -> dict[str, torch.Tensor]:
    """This rank's part of the model's first weights, drawn as worker.model.build_model draws them.

    All tensors are drawn in the model's order, since each depends on those before it, but only one is in
    memory at a time.
    """
    wanted = {piece.name: piece for piece in pieces}
    generator = torch.Generator().manual_seed(seed)
    parts = {}
    for name, parameter in skeleton(config).named_parameters():
        if parameter.dim() == 1:
            drawn = torch.ones(parameter.shape)
        else:
            writes_residual = name.endswith(("project_out.weight", "narrow.weight"))
            std = _INIT_STD / math.sqrt(2 * config.layers) if writes_residual else _INIT_STD
            drawn = torch.empty(parameter.shape).normal_(0.0, std, generator=generator)
        if name in wanted:
            parts[name] = take(drawn, wanted[name])
    return parts
