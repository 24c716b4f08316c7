"""Records out of immutable chunk files.

A chunk is a parquet file named by the SHA-256 of its content. It is hashed when it is first opened, so what
is trained on is what was distributed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tailtrain.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailtrain.worker.config import RowRange

_TEXT = "text"


class ChunkStore:
    """The verified chunk files of this node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._verified: set[str] = set()

    def rows(self, chunk: str) -> int:
        """How many records a chunk holds."""
        return int(self._table(chunk).num_rows)

    def texts(self, chunk: str, start: int = 0, stop: int | None = None) -> list[bytes]:
        """The records of rows `start` to `stop` as UTF-8.

        Raises:
            WorkerError: the chunk is missing, is not what its name says, has no text, or fewer rows.
        """
        table = self._table(chunk)
        stop = table.num_rows if stop is None else stop
        if stop > table.num_rows:
            raise WorkerError(
                "a chunk has fewer records than this node's share names",
                field=chunk,
                found=table.num_rows,
                expected=stop,
            )
        column = table.column(_TEXT).slice(start, stop - start)
        return [b"" if text is None else text.encode() for text in column.to_pylist()]

    def _table(self, chunk: str) -> pa.Table:
        path = self._directory / chunk
        try:
            content = path.read_bytes()
        except OSError as error:
            raise WorkerError(
                "a chunk is not here",
                field=str(path),
                found=error.strerror,
                fix="Deploy again: it is fetched and verified",
            ) from error
        if chunk not in self._verified:
            found = hashlib.sha256(content).hexdigest()
            if found != chunk:
                raise WorkerError(
                    "a chunk is damaged",
                    field=str(path),
                    found=found,
                    expected=chunk,
                    fix="Deploy again: it is fetched and verified",
                )
            self._verified.add(chunk)
        try:
            return pq.read_table(pa.BufferReader(content), columns=[_TEXT], use_threads=False)
        except (pa.ArrowException, KeyError) as error:
            raise WorkerError("a chunk has no readable text column", field=str(path)) from error


def total_rows(ranges: Sequence[RowRange]) -> int:
    """Records in these ranges."""
    return sum(owned.stop - owned.start for owned in ranges)
