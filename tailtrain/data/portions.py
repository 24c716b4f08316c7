"""How many rows of a parquet file to read at a time, so that they take little memory.

Not every row is as long as the mean: a batch of a thousand short texts may hold a few that are thousands of
times as long. What a batch can take at most follows from the file's pages (`tailtrain.data.pages`): the rows
of a page take no more than the page, and a value of a dictionary no more than its longest.
"""

from __future__ import annotations

import shlex
from collections import deque
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailtrain.data.pages import Page, pages_of
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_PAGE_BYTES = 128 << 20
"""The largest page that is unpacked; DuckDB makes pages of 100 MB, most others of about 1 MB."""

MOST_DICTIONARY_BYTES = 32 << 20
"""The largest dictionary that is unpacked; most writers stop at 1 MB."""

MOST_RECORD_BYTES = 16 << 20
"""The longest text that can be trained on."""

BUFFER_BYTES = 1 << 20
"""A column is read through a buffer of this size instead of whole: a row group may be gigabytes."""

# Rows of a batch, and bytes that it surely does not exceed; where nothing is sure, few rows are asked for,
# and no more than are expected to take so many bytes.
_BATCH_ROWS, _MOST_BATCH_BYTES = 1024, 16 << 20
_FEW_ROWS, _FEW_BYTES = 64, 4 << 20


class Portions:
    """How many rows of each row group to ask for at a time.

    Args:
        path: the parquet file.
        stream: the same file, opened.
        metadata: its footer.
        columns: what will be read of it.
        bounded: refuse pages that take much memory.
    """

    def __init__(
        self,
        path: Path,
        stream: BinaryIO,
        metadata: pq.FileMetaData,
        columns: Sequence[str],
        *,
        bounded: bool,
    ) -> None:
        self._path = path
        self._stream = stream
        self._metadata = metadata
        self._bounded = bounded
        # A name with a dot in it also stands for a column inside another: what is read besides counts too.
        self._leaves = [
            (index, name)
            for index in range(metadata.num_columns)
            for name in columns
            if f"{metadata.schema.column(index).path}.".startswith(f"{name}.")
        ]

    def rows_at_once(self, group: int) -> int:
        """Give it for a row group.

        Raises:
            DataError: the row group has a page that takes too much memory.
            ValueError: its pages are damaged.
            OSError: it cannot be read.
        """
        columns = self._metadata.row_group(group)
        return min((self._rows(group, columns.column(leaf), name) for leaf, name in self._leaves), default=1)

    def _rows(self, group: int, column: pq.ColumnChunkMetaData, name: str) -> int:
        pages = list(pages_of(self._stream, column))
        if self._bounded:
            for page in pages:
                self._check(page, name)
        return _rows_that_fit(pages, self._longest_shared(group, column, name, pages))

    def _check(self, page: Page, name: str) -> None:
        """Refuse what would take much memory before it does."""
        most = MOST_DICTIONARY_BYTES if page.dictionary else MOST_PAGE_BYTES
        if not page.dictionary and not page.shared:
            most = min(most, page.rows * MOST_RECORD_BYTES)
        if page.size > most:
            what = "a dictionary" if page.dictionary else f"a page of {page.rows} rows"
            raise DataError(
                f"the column {name} has {what} that takes too much memory",
                field=str(self._path),
                found=f"{page.size:,} bytes",
                expected=f"{most:,} bytes or less",
                fix=rewrite(self._path),
            )

    def _longest_shared(
        self, group: int, column: pq.ColumnChunkMetaData, name: str, pages: Sequence[Page]
    ) -> int:
        """Give how long a value can be that is stored once for many rows; 0 where none is."""
        longest = max((page.size for page in pages if page.shared), default=0)
        dictionary = max((page.size for page in pages if page.dictionary), default=0)
        if dictionary * _BATCH_ROWS > _MOST_BATCH_BYTES and column.path_in_schema == name:
            # Too much if all of it were one value, so it is looked into.
            with pq.ParquetFile(
                self._path,
                metadata=self._metadata,
                read_dictionary=[name],
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
            ) as parquet:
                for batch in parquet.iter_batches(1, [group], [name], use_threads=False):
                    values = batch.column(name)
                    if pa.types.is_dictionary(values.type):
                        values = values.dictionary.cast(pa.large_binary())
                        dictionary = pc.max(pc.binary_length(values)).as_py() or 0
                    break
        return max(longest, dictionary)


def _rows_that_fit(pages: Sequence[Page], longest: int) -> int:
    """Choose how many rows to ask for: as many as surely fit, or where none do, as many as should.

    Rows of a page that shares nothing take no more than the page; of the others, `longest` bytes each.
    """
    rows = _BATCH_ROWS
    while rows > 1 and max(_touched(pages, rows), rows * longest) > _MOST_BATCH_BYTES:
        rows //= 2
    mean = sum(page.size for page in pages) // max(1, sum(page.rows for page in pages))
    few = min(_FEW_ROWS, _FEW_BYTES // max(1, mean, longest))
    return max(1, rows, few)


def _touched(pages: Sequence[Page], rows: int) -> int:
    """Give how many bytes the pages have, at most, that so many neighbouring rows lie in."""
    most = size = 0
    window: deque[Page] = deque()
    between = 0  # rows of the window's pages without the first
    for page in pages:
        if page.shared or page.dictionary:
            continue
        while window and between + 2 > rows:
            size -= window.popleft().size
            between -= window[0].rows if window else 0
        between += page.rows if window else 0
        window.append(page)
        size += page.size
        most = max(most, size)
    return most


def rewrite(path: Path) -> str:
    """Say how to make a file of this one that can be used."""
    return f"Write it anew with: tailtrain dataset build parquet {shlex.quote(str(path))} --output FILE"
