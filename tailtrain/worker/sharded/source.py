"""Batches by their step, so that every node can make the batch of any step from what it has.

The first stage needs a batch's inputs and the last its targets; after a lost node all begin again at the step
of the newest checkpoint. Neither needs a message where a batch follows from its step alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tailtrain.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Sequence

Bytes: TypeAlias = npt.NDArray[np.uint8]

_SEPARATOR = b"\x00"


@dataclass(frozen=True)
class Batch:
    """Windows (batch, context + 1) of byte values, and how many records they completed."""

    windows: Bytes
    records: int


class BatchSource(Protocol):
    """Gives the batch of a step; the same on all nodes, whenever and however often it is asked."""

    def batch(self, step: int) -> Batch:
        """The batch of this step, from 0."""

    def cursor(self, step: int) -> dict[str, Any]:
        """What a checkpoint keeps, so that `seek` is quick: where reading stands before this step."""

    def seek(self, step: int, cursor: dict[str, Any]) -> None:
        """The next step asked for is this one, of a checkpoint with this cursor."""


class TextSource:
    """Batches from records in memory: each epoch they are shuffled with a seed, joined and cut into windows.

    Args:
        texts: the records, the same in the same order on all nodes.
        batch_size: windows in a batch.
        context: bytes that a window predicts.
        seed: of the order.

    Raises:
        WorkerError: there is nothing to train on.
    """

    def __init__(self, texts: Sequence[bytes], *, batch_size: int, context: int, seed: int) -> None:
        self._texts, self._batch_size, self._context, self._seed = texts, batch_size, context, seed
        size = sum(len(text) + 1 for text in texts)
        # Windows overlap by one byte: the last of one is the first of the next.
        self._windows = (size - 1) // context
        if self._windows < 1:
            raise WorkerError(
                "there is too little text to train on", found=f"{size} bytes", expected=f"over {context}"
            )
        self._epoch, self._data, self._ends = -1, np.zeros(0, np.uint8), np.zeros(0, np.int64)

    def batch(self, step: int) -> Batch:
        """See BatchSource."""
        windows, records = [], 0
        for number in range(step * self._batch_size, (step + 1) * self._batch_size):
            epoch, index = divmod(number, self._windows)
            if epoch != self._epoch:
                self._shuffle(epoch)
            first = index * self._context
            windows.append(self._data[first : first + self._context + 1])
            until = len(self._data) if index + 1 == self._windows else first + self._context
            records += int(np.searchsorted(self._ends, until, "right"))
            records -= int(np.searchsorted(self._ends, first, "right"))
        return Batch(np.stack(windows), records)

    def cursor(self, step: int) -> dict[str, Any]:
        """See BatchSource; the step says it all."""
        return {"step": step}

    def seek(self, step: int, cursor: dict[str, Any]) -> None:
        """See BatchSource; nothing is to be done."""

    def _shuffle(self, epoch: int) -> None:
        texts = list(self._texts)
        random.Random(f"{self._seed}/{epoch}").shuffle(texts)  # noqa: S311 - a shuffle, not a secret
        self._data = np.frombuffer(_SEPARATOR.join([*texts, b""]), np.uint8)
        self._ends = np.cumsum([len(text) + 1 for text in texts])
        self._epoch = epoch
