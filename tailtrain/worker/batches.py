"""Windows of bytes for training, in a seeded order that can be resumed at any window.

Per domain and epoch: the node's row ranges are shuffled, taken a few at a time (a shelf), the shelf's records
are shuffled together, and taken until they fill a block. Long records are cut into pieces, the block's
pieces are shuffled and joined by separators, and the block is cut into windows of `context` bytes. A file of
a megabyte therefore does not fill batch after batch alone, memory stays bounded by a shelf, and a position is
three numbers: epoch, first record of the block, window in the block.

Domains are mixed so that all finish their epochs together: each window comes from the domain of which the
least is done, which is in proportion to the records left.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tailtrain.errors import CheckpointError
from tailtrain.worker.records import ChunkStore, total_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailtrain.worker.config import DomainConfig, RowRange

_SHELF_RANGES = 4
_BLOCK_BYTES = 32 << 10
_PIECE_WINDOWS = 4  # a piece of a long record is this many windows long
_SEPARATOR = b"\x00"

Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Position:
    """Where one domain's reading stands. `shares` names the row ranges that it was counted in."""

    epoch: int
    record: int
    window: int
    shares: str

    def to_json(self) -> dict[str, Any]:
        """As kept in a checkpoint."""
        return {"epoch": self.epoch, "record": self.record, "window": self.window, "shares": self.shares}


@dataclass(frozen=True)
class _Block:
    """Some records, ready to be cut: `ends[k]` records are complete once k windows were taken."""

    data: Bytes
    records: int
    ends: tuple[int, ...]

    @property
    def windows(self) -> int:
        return len(self.ends) - 1


class DomainReader:
    """Endless windows of one domain's records on this node; one that owns no records is never asked."""

    def __init__(self, domain: DomainConfig, store: ChunkStore, *, context: int, seed: str) -> None:
        self.name = domain.domain
        self.records = total_rows(domain.ranges)
        self._ranges, self._store, self._context = domain.ranges, store, context
        self._seed = f"{seed}/{domain.domain}"
        self._start = Position(0, 0, 0, _ranges_digest(domain.ranges))
        self._position = self._start
        self._blocks: Iterator[_Block] | None = None
        self._block: _Block | None = None

    @property
    def position(self) -> Position:
        """The next window to be read."""
        return self._position

    @property
    def done(self) -> float:
        """Epochs done, with the fraction of the present one."""
        inside = 0.0
        if self._position.window:
            block = self._load_block()
            inside = block.records * self._position.window / block.windows
        return self._position.epoch + (self._position.record + inside) / self.records

    def seek(self, position: Position) -> None:
        """Go to a saved position. Where the node's share has changed since, the next epoch begins."""
        if position.shares != self._start.shares:
            position = replace(self._start, epoch=position.epoch + 1)
        self._position, self._blocks, self._block = position, None, None

    def next_window(self) -> tuple[Bytes, int]:
        """One window of `context` + 1 bytes, and how many records it completed."""
        block, index = self._load_block(), self._position.window
        length = self._context + 1
        # The last window reaches back instead of being padded, so a few bytes of a block are seen twice.
        first = max(0, min(index * self._context, len(block.data) - length))
        window = block.data[first : first + length]
        if len(window) < length:
            window = np.concatenate([window, np.zeros(length - len(window), np.uint8)])
        completed = block.ends[index + 1] - block.ends[index]
        self._position = replace(self._position, window=index + 1)
        if index + 1 == block.windows:
            self._block = None
            record = self._position.record + block.records
            if record < self.records:
                self._position = replace(self._position, record=record, window=0)
            else:
                self._position = replace(self._position, epoch=self._position.epoch + 1, record=0, window=0)
                self._blocks = None
        return window, completed

    def _load_block(self) -> _Block:
        if self._block is None:
            if self._blocks is None:
                self._blocks = self._epoch_blocks(self._position.epoch, self._position.record)
            self._block = next(self._blocks)
        return self._block

    def _epoch_blocks(self, epoch: int, from_record: int) -> Iterator[_Block]:
        """The epoch's blocks, from the one that begins at `from_record` on."""
        order = random.Random(f"{self._seed}/{epoch}")  # noqa: S311 - a shuffle, not a secret
        ranges = list(self._ranges)
        order.shuffle(ranges)
        position = 0
        for index in range(0, len(ranges), _SHELF_RANGES):
            shelf = ranges[index : index + _SHELF_RANGES]
            count = total_rows(shelf)
            shelf_order = random.Random(f"{self._seed}/{epoch}/{index}")  # noqa: S311 - as above
            if position + count <= from_record:
                position += count
                continue
            texts = [text for own in shelf for text in self._store.texts(own.chunk, own.start, own.stop)]
            shelf_order.shuffle(texts)
            for block_texts in _groups(texts):
                if position >= from_record:
                    yield self._cut(block_texts, f"{self._seed}/{epoch}/{index}/{position}")
                position += len(block_texts)

    def _cut(self, texts: Sequence[bytes], seed: str) -> _Block:
        size = _PIECE_WINDOWS * self._context
        pieces = [
            (record, text[first : first + size])
            for record, text in enumerate(texts)
            for first in range(0, max(1, len(text)), size)
        ]
        random.Random(seed).shuffle(pieces)  # noqa: S311 - as above
        data = np.frombuffer(b"".join(_SEPARATOR + piece for _, piece in pieces) + _SEPARATOR, np.uint8)
        windows = max(1, -(-(len(data) - 1) // self._context))
        last_window = [0] * len(texts)
        end = 0
        for record, piece in pieces:
            end += 1 + len(piece)
            last_window[record] = min(windows - 1, max(0, end - 1) // self._context)
        completed = np.bincount(last_window, minlength=windows)
        return _Block(data, len(texts), (0, *(int(total) for total in np.cumsum(completed))))


class BatchStream:
    """Batches of a node, drawn from all its domains."""

    def __init__(
        self, domains: Sequence[DomainConfig], store: ChunkStore, *, context: int, seed: str
    ) -> None:
        self._readers = [
            DomainReader(domain, store, context=context, seed=seed) for domain in domains if domain.ranges
        ]

    @property
    def empty(self) -> bool:
        """Whether this node owns no records at all."""
        return not self._readers

    def next_batch(self, size: int) -> tuple[Bytes, int]:
        """`size` windows, one per row, and how many records were completed."""
        windows, records = [], 0
        for _ in range(size):
            reader = min(self._readers, key=lambda reader: (reader.done, reader.name))
            window, completed = reader.next_window()
            windows.append(window)
            records += completed
        return np.stack(windows), records

    def cursor(self) -> dict[str, Any]:
        """Where each domain stands, for a checkpoint."""
        return {reader.name: reader.position.to_json() for reader in self._readers}

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go to a saved cursor; a domain that it does not name starts anew.

        Raises:
            CheckpointError: the cursor is not one.
        """
        for reader in self._readers:
            saved = cursor.get(reader.name)
            if saved is not None:
                reader.seek(_position(reader.name, saved))


def _position(domain: str, saved: Any) -> Position:
    match saved:
        case {"epoch": int(epoch), "record": int(record), "window": int(window), "shares": str(shares)} if (
            min(epoch, record, window) >= 0
        ):
            return Position(epoch, record, window, shares)
    raise CheckpointError("a data cursor is damaged", field=domain, found=saved)


def _groups(texts: Sequence[bytes]) -> Iterator[list[bytes]]:
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


def _ranges_digest(ranges: Sequence[RowRange]) -> str:
    text = ";".join(f"{own.chunk}:{own.start}:{own.stop}" for own in ranges)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
