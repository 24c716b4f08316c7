"""Parameters between the ranks and the files of a checkpoint, one rank's part at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from tailtrain.errors import CheckpointError
from tailtrain.worker.sharded.files import KINDS
from tailtrain.worker.sharded.layout import take
from tailtrain.worker.weights import is_finite

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from tailtrain.worker.sharded.files import ModelFiles
    from tailtrain.worker.sharded.layout import Piece

Layouts = dict[int, tuple["Piece", ...]]
"""What each active rank of the world holds."""


def gather(
    layouts: Layouts,
    own: Mapping[str, Tensor],
    writers: Sequence[int],
    files: ModelFiles | None,
) -> None:
    """Bring all ranks' parameters and moments into the writers' files; every active rank calls it.

    Args:
        layouts: what each active rank holds.
        own: this rank's vectors, by kind.
        writers: the ranks that write.
        files: where this rank writes; None where it does not.
    """
    rank = dist.get_rank()
    for owner, pieces in layouts.items():
        for kind in KINDS:
            if rank == owner:
                for writer in writers:
                    if writer != owner:
                        dist.send(own[kind], writer)
            if files is None:
                continue
            vector = own[kind] if rank == owner else _received(pieces, owner)
            _write(files, kind, pieces, vector)


def scatter(
    layouts: Layouts,
    own: Mapping[str, Tensor],
    holder: int,
    files: ModelFiles | None,
    having: Collection[int],
) -> None:
    """Fill all active ranks' vectors from a checkpoint; every rank calls it.

    Args:
        layouts: what each active rank holds.
        own: this rank's vectors, by kind; of no kinds where it stands by.
        holder: the rank that reads the checkpoint for those that have none.
        files: the checkpoint's files on this node; None where it is not here.
        having: the ranks that have the same checkpoint themselves.

    Raises:
        CheckpointError: a value is not finite.
    """
    rank = dist.get_rank()
    for reader, pieces in layouts.items():
        for kind in KINDS:
            local = reader in having
            if rank == reader and local:
                assert files is not None  # noqa: S101 - it is among those that have it
                own[kind].copy_(_read(files, kind, pieces))
            elif rank == reader:
                dist.recv(own[kind], holder)
            elif rank == holder and not local:
                assert files is not None  # noqa: S101 - as above
                dist.send(_read(files, kind, pieces), reader)
    for kind, vector in own.items():
        if not is_finite(vector):
            raise CheckpointError("a checkpoint contains values that are not finite", field=kind)


def _received(pieces: Sequence[Piece], owner: int) -> Tensor:
    vector = torch.empty(sum(piece.numel for piece in pieces))
    dist.recv(vector, owner)
    return vector


def _write(files: ModelFiles, kind: str, pieces: Sequence[Piece], vector: Tensor) -> None:
    """Put a rank's vector where it belongs in the files; copies are left to whoever answers for them."""
    for piece, part in zip(pieces, vector.split([piece.numel for piece in pieces]), strict=True):
        if piece.copy:
            continue
        tensor = files.tensor(kind, piece.name)
        rows = part.view(piece.shape).split(piece.splits)
        for block, values in zip(piece.blocks, rows, strict=True):
            tensor[block] = values.numpy()


def _read(files: ModelFiles, kind: str, pieces: Sequence[Piece]) -> Tensor:
    """A rank's vector out of the files."""
    parts = []
    for piece in pieces:
        # A copy: torch cannot hold what may not be written to.
        whole = torch.from_numpy(files.tensor(kind, piece.name).copy())
        parts.append(take(whole, piece).reshape(-1))
    return torch.cat(parts)
