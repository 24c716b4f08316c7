"""The files of a checkpoint, written and read in pieces: nobody holds the whole model in memory.

They are what the data-parallel engine writes: weights.safetensors with the model's parameter names, and
optimizer.safetensors with the moments as flat vectors (`first`, `second`) in FlatWeights' order. A file in
that form is the length of its header, a JSON header, and plain numbers, so it can be mapped into memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tailtrain.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.worker.sharded.layout import WholeModel

WEIGHTS, OPTIMIZER = "weights.safetensors", "optimizer.safetensors"
KINDS = ("weights", "first", "second")
"""What is kept of each parameter: its value and AdamW's two moments."""

Numbers: TypeAlias = npt.NDArray[np.float32]

_LENGTH_BYTES, _ALIGNMENT, _FLOAT_BYTES = 8, 8, 4
_PART = 1 << 20


class ModelFiles:
    """Both files of one checkpoint, mapped.

    Args:
        directory: where they are.
        whole: the model's parameters.
        create: whether to make them anew, full of zeros.

    Raises:
        CheckpointError: they are of another model.
        OSError: they are missing, or the disk has no room for them.
    """

    def __init__(self, directory: Path, whole: WholeModel, *, create: bool = False) -> None:
        self._directory, self._whole, self._create = directory, whole, create
        self._offsets = whole.offsets()
        self._starts = {
            WEIGHTS: self._open(WEIGHTS, dict(whole.shapes)),
            OPTIMIZER: self._open(OPTIMIZER, dict.fromkeys(KINDS[1:], (whole.parameters,))),
        }

    def tensor(self, kind: str, name: str) -> Numbers:
        """One parameter's values or moments, as an array that is the file; read-only unless just created."""
        file = WEIGHTS if kind == "weights" else OPTIMIZER
        before = self._offsets[name]
        if kind == "second":
            before += self._whole.parameters
        return np.memmap(
            self._directory / file,
            dtype="<f4",
            mode="r+" if self._create else "r",
            offset=self._starts[file] + _FLOAT_BYTES * before,
            shape=self._whole.shapes[name],
        )

    def finish(self) -> tuple[dict[str, str], str]:
        """Make the files durable; the SHA-256 of each, and that of the weights' numbers alone."""
        for name in (WEIGHTS, OPTIMIZER):
            descriptor = os.open(self._directory / name, os.O_RDWR)
            os.fsync(descriptor)
            os.close(descriptor)
        hashes = {name: sha256_of(self._directory / name) for name in (WEIGHTS, OPTIMIZER)}
        return hashes, sha256_of(self._directory / WEIGHTS, self._starts[WEIGHTS])

    def _open(self, file: str, shapes: dict[str, tuple[int, ...]]) -> int:
        """Where the numbers begin in this file, which is made if it is to be."""
        header = _header(shapes)
        path = self._directory / file
        if self._create:
            with path.open("wb") as made:
                made.write(header)
                made.flush()
                size = _FLOAT_BYTES * sum(math.prod(shape) for shape in shapes.values())
                # Room, not a hole: a full disk says so here, and would end this process where it is mapped.
                os.posix_fallocate(made.fileno(), len(header), size)
            return len(header)
        with path.open("rb") as read:
            # Our own header, byte for byte: nothing of a file is believed that its name and hash did not say.
            if read.read(len(header)) != header:
                raise CheckpointError("the weights are of another model", field=str(path))
        return len(header)


def _header(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """The beginning of a safetensors file with these float32 tensors, one after the other."""
    entries: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        size = _FLOAT_BYTES * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def sha256_of(path: Path, start: int = 0) -> str:
    """SHA-256 of a file from byte `start` on, read in parts."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        while part := file.read(_PART):
            digest.update(part)
    return digest.hexdigest()
