"""Writing chunk files: records in order, each file full before the next, the same bytes for the same records.

A chunk's bytes depend on its records alone, not on the batches in which they came. To hold little of a chunk
in memory, it is written in row groups of a few megabytes; where these end is decided by the records too.
"""

from __future__ import annotations

import hashlib
import os
import time
from bisect import bisect_right
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailtrain.data.manifest import ChunkFile
from tailtrain.data.reading import text_spans
from tailtrain.data.verify import TEMPORARY, look

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_GROUP_BYTES, _GROUP_ROWS = 8 << 20, 1 << 17


class ChunkWriter:
    """Writes the chunks of one side of the split.

    Attributes:
        chunks: those that are done.
        looks: what each looked like when its hash was known, by its name (see `tailtrain.data.verify.look`).

    Args:
        side: which, as the files say inside.
        folder: where the files go; must be there.
        schema: of the records.
        max_rows: of a chunk.
        max_bytes: of text in a chunk; one record is never cut.
    """

    def __init__(self, side: str, folder: Path, schema: pa.Schema, max_rows: int, max_bytes: int) -> None:
        self.chunks: list[ChunkFile] = []
        self.looks: dict[str, list[int]] = {}
        self._side, self._folder, self._schema = side, folder, schema
        self._max = (max_rows, max_bytes)
        self._file: _File | None = None
        self._group: list[pa.RecordBatch] = []
        # Rows and bytes so far: of text in the chunk, of everything in the row group.
        self._in_chunk = (0, 0)
        self._in_group = (0, 0)
        self._before = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take records in, and write what they fill.

        Raises:
            OSError: it cannot be written.
        """
        _, text = text_spans(batch)
        everything = _all_spans(batch, text)
        row = 0
        while row < batch.num_rows:
            stop = _filled(text, row, batch.num_rows, self._in_chunk, self._max)
            if stop == row:
                self._end_chunk()
                continue
            stop = _filled(everything, row, stop, self._in_group, (_GROUP_ROWS, _GROUP_BYTES))
            if stop == row:
                self._end_group()
                continue
            self._group.append(batch.slice(row, stop - row))
            self._in_chunk = _more(self._in_chunk, text, row, stop)
            self._in_group = _more(self._in_group, everything, row, stop)
            row = stop

    def finish(self) -> tuple[ChunkFile, ...]:
        """Write what is left and give all chunks.

        Raises:
            OSError: it cannot be written.
        """
        if self._in_chunk[0]:
            self._end_chunk()
        return tuple(self.chunks)

    def close(self) -> None:
        """Remove the file that is not full, where there is one."""
        if self._file:
            self._file.discard()
            self._file = None

    def _end_group(self) -> _File:
        if self._file is None:
            self._file = _File(self._folder / f"{TEMPORARY}{os.getpid()}-{self._side}", self._schema)
        table = pa.Table.from_batches(self._group, self._schema)
        self._group, self._in_group = [], (0, 0)
        # In one piece: where pages end would follow from the pieces.
        self._file.write(table.combine_chunks())
        return self._file

    def _end_chunk(self) -> None:
        file = self._end_group()
        rows = self._in_chunk[0]
        # The position makes every chunk's name its own, even where all records are equal.
        about = {"tailtrain.side": self._side, "tailtrain.first_record": str(self._before)}
        name, size = file.place(about, self._folder)
        self.chunks.append(ChunkFile(name, size, rows))
        self.looks[name] = look((self._folder / name).lstat(), time.time_ns())
        self._before += rows
        self._file, self._in_chunk = None, (0, 0)


def _filled(spans: Sequence[int], row: int, stop: int, now: tuple[int, int], most: tuple[int, int]) -> int:
    """Give where the rows from `row` on, and before `stop`, no longer fit; one fits where nothing is yet."""
    rows, size = now
    fits = bisect_right(spans, spans[row] + most[1] - size, lo=row) - 1
    fits = min(stop, fits, row + most[0] - rows)
    return max(fits, row if rows else row + 1)


def _more(now: tuple[int, int], spans: Sequence[int], row: int, stop: int) -> tuple[int, int]:
    return now[0] + stop - row, now[1] + spans[stop] - spans[row]


def _all_spans(batch: pa.RecordBatch, text: Sequence[int]) -> Sequence[int]:
    """Give what `text` is for the text, for the bytes of all columns together."""
    if batch.num_columns == 1:
        return text
    sizes = pc.binary_length(batch.column(0))
    for column in batch.columns[1:]:
        sizes = pc.add(sizes, pc.binary_length(column).fill_null(0))
    return list(accumulate(sizes.to_pylist(), initial=0))


class _HashingFile:
    """A file that hashes what is written to it, so that a chunk is named without reading it again."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0
        self.closed = False
        self.given_up = False

    def write(self, data: bytes) -> int:
        if self.given_up:
            return len(data)
        self.digest.update(data)
        self.size += len(data)
        return self._stream.write(data)

    def flush(self) -> None:
        self._stream.flush()


class _File:
    """A chunk that is being written under a temporary name."""

    def __init__(self, temporary: Path, schema: pa.Schema) -> None:
        self._temporary = temporary
        self._stream = temporary.open("wb")
        self._hashing = _HashingFile(self._stream)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._hashing, mode="w"),
            schema,
            compression="zstd",
            compression_level=3,
            write_statistics=False,
            use_dictionary=[name for name in schema.names if name != "text"],
            store_schema=False,
            version="2.6",
            data_page_version="1.0",
        )

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self._writer.write_table(table, row_group_size=table.num_rows)

    def place(self, about: dict[str, str], folder: Path) -> tuple[str, int]:
        """End the file and give it its name; its name and size."""
        self._writer.add_key_value_metadata(about)
        self._writer.close()
        self._stream.close()
        # Not flushed to the disk one by one, which takes longer than cutting: chunks can be cut again, the
        # cache looks at each before its use, and a node believes nothing that it has not hashed.
        name = self._hashing.digest.hexdigest()
        if _is_right(folder / name, name, self._hashing.size):
            self._temporary.unlink()
        else:
            self._temporary.replace(folder / name)
        return name, self._hashing.size

    def discard(self) -> None:
        """Leave nothing under the temporary name."""
        # Closing would write the file's footer, perhaps to the full disk that is the reason for this.
        self._hashing.given_up = True
        with suppress(OSError):
            self._writer.close()
            self._stream.close()
        self._temporary.unlink(missing_ok=True)


def _is_right(path: Path, digest: str, size: int) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == digest
