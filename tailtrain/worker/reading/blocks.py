"""Records cut into windows.

Records are taken until they fill a block. Long records are cut into pieces, the block's pieces are shuffled
and joined by separators, and the block is cut into windows of `context` bytes, which are taken in a shuffled
order. So a batch has text of many records, and a file of a megabyte does not fill batch after batch alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

_BLOCK_BYTES = 256 << 10
_PIECE_WINDOWS = 4  # a piece of a long record is this many windows long
_SEPARATOR = b"\x00"

Bytes: TypeAlias = npt.NDArray[np.uint8]
Indices: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Block:
    """Some records, cut: `ends[k]` records are complete once the first k windows of `order` were taken."""

    data: Bytes
    records: int
    order: Indices
    ends: Indices
    context: int

    @property
    def windows(self) -> int:
        """How many windows it has."""
        return len(self.order)

    def window(self, index: int) -> tuple[Bytes, int]:
        """The window that is taken at this place: `context` + 1 bytes, and how many records it completes."""
        length = self.context + 1
        # The last window reaches back instead of being padded, so a few bytes of a block are seen twice.
        first = max(0, min(int(self.order[index]) * self.context, len(self.data) - length))
        window = self.data[first : first + length]
        if len(window) < length:
            window = np.concatenate([window, np.zeros(length - len(window), np.uint8)])
        return window, int(self.ends[index + 1] - self.ends[index])


def cut(texts: Sequence[bytes], order: random.Random, context: int) -> Block:
    """A block of these records, its pieces and its windows in the orders that `order` gives."""
    size = _PIECE_WINDOWS * context
    pieces = [
        (record, text[first : first + size])
        for record, text in enumerate(texts)
        for first in range(0, max(1, len(text)), size)
    ]
    order.shuffle(pieces)
    data = np.frombuffer(b"".join(_SEPARATOR + piece for _, piece in pieces) + _SEPARATOR, np.uint8)
    windows = max(1, -(-(len(data) - 1) // context))
    taken = list(range(windows))
    order.shuffle(taken)
    ends = _ends(pieces, taken, len(texts), context)
    return Block(data, len(texts), np.array(taken, np.int32), ends, context)


def _ends(pieces: Sequence[tuple[int, bytes]], taken: Sequence[int], records: int, context: int) -> Indices:
    """How many records are complete after each window: those of which no piece is in a later one."""
    place = np.argsort(taken)
    last = np.zeros(records, np.int64)
    end = 0
    for record, piece in pieces:
        begin, end = end, end + 1 + len(piece)
        windows = place[begin // context : (end - 1) // context + 1]
        last[record] = max(last[record], windows.max())
    return np.concatenate([[0], np.cumsum(np.bincount(last, minlength=len(taken)))]).astype(np.int32)


def groups(texts: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The texts in order, cut where a block is full."""
    group: list[bytes] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text) + 1
        if size >= _BLOCK_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
