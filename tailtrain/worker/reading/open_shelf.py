"""A shelf that is being read: its records shuffled together and cut into blocks.

A place in it is a block's first record and a window in the block, and whoever reads on from there, here or on
another node, sees the same windows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailtrain.worker.reading.blocks import Block, Bytes, cut, groups
from tailtrain.worker.reading.reading_progress import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.worker.reading.shards import Shard, Shelf


_OBJECT_BYTES = 64  # of a bytes object and the list's reference to it, about


class OpenShelf:
    """The block at hand of a shelf, and those after it.

    Args:
        shelf: which.
        texts: its records, in the order of its ranges; at least one.
        shard: whose it is.
        epoch: of the shard.
        place: where reading goes on.
        context: bytes in a window.

    Attributes:
        index: the shelf's.
        bytes: of memory that its texts take, about.
        taken: a number that rises by one with every window of a block, and follows from the place.
        finished: whether its last window was taken.
    """

    def __init__(
        self,
        shelf: Shelf,
        texts: Sequence[bytes],
        shard: Shard,
        *,
        epoch: int,
        place: Place,
        context: int,
    ) -> None:
        self.index, self.finished = shelf.index, False
        self.bytes = sum(map(len, texts)) + _OBJECT_BYTES * len(texts)
        self._shard, self._epoch, self._context = shard, epoch, context
        self._records = len(texts)
        shuffled = list(texts)
        shard.order(epoch, shelf.index).shuffle(shuffled)
        self._blocks = self._cut(shuffled, place.record)
        self._record, self.block = next(self._blocks)
        self._window = min(place.window, self.block.windows - 1)
        self.taken = self._record + self._window

    @property
    def place(self) -> Place:
        """Where reading goes on."""
        return Place(self._record, self._window, self._records - math.ceil(self.left))

    @property
    def left(self) -> float:
        """How many of its records are left to read, to the window."""
        return self._records - self._record - self.block.records * self._window / self.block.windows

    def next_window(self) -> tuple[Bytes, int]:
        """One window of `context` + 1 bytes, and how many records it completed.

        Raises:
            IndexError: the shelf is finished.
        """
        window, completed = self.block.window(self._window)
        self._window += 1
        if self._window == self.block.windows:
            following = next(self._blocks, None)
            if following is None:
                self.finished = True
            else:
                (self._record, self.block), self._window = following, 0
        self.taken = self._record + self._window
        return window, completed

    def _cut(self, texts: Sequence[bytes], from_record: int) -> Iterator[tuple[int, Block]]:
        """The blocks and their first records, from the one with `from_record` on."""
        first = 0
        for group in groups(texts):
            if first + len(group) > from_record:
                yield first, cut(group, self._shard.order(self._epoch, self.index, first), self._context)
            first += len(group)
