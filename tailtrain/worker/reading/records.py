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
    from pathlib import Path

_TEXT = "text"


class ChunkStore:
    """The chunk files of this node; each is verified before it is first used.

    Attributes:
        arrivals: how many were fetched since the start; whoever lacked one looks again when it changes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._verified: set[str] = set()
        self._damaged: set[str] = set()
        self.arrivals = 0

    @property
    def changes(self) -> tuple[int, int]:
        """Differs from before if a chunk has arrived, or turned out to be damaged."""
        return self.arrivals, len(self._damaged)

    def present(self, chunk: str) -> bool:
        """Whether there is a file of a chunk, not known to be damaged; looks, without reading it."""
        return chunk not in self._damaged and (self._directory / chunk).is_file()

    def arrived(self, chunk: str) -> None:
        """A verified file of the chunk was put in place."""
        self._damaged.discard(chunk)
        self._verified.add(chunk)
        self.arrivals += 1

    def problem(self, chunk: str) -> WorkerError | None:
        """Why a chunk cannot be read; None if it is here and what its name says."""
        try:
            self._content(chunk)
        except WorkerError as error:
            return error
        return None

    def texts(self, chunk: str, start: int = 0, stop: int | None = None) -> list[bytes]:
        """The records of rows `start` to `stop` as UTF-8.

        Raises:
            WorkerError: the chunk is missing, is not what its name says, has no text, or fewer rows.
        """
        table = self._table(chunk)
        stop = table.num_rows if stop is None else stop
        if stop > table.num_rows:
            raise WorkerError(
                "a chunk has fewer records than a node's share names",
                field=chunk,
                found=table.num_rows,
                expected=stop,
            )
        column = table.column(_TEXT).slice(start, stop - start)
        return [b"" if text is None else text.encode() for text in column.to_pylist()]

    def _table(self, chunk: str) -> pa.Table:
        content = self._content(chunk)
        try:
            return pq.read_table(pa.BufferReader(content), columns=[_TEXT], use_threads=False)
        except (pa.ArrowException, KeyError) as error:
            raise WorkerError(
                "a chunk has no readable text column", field=str(self._directory / chunk)
            ) from error

    def _content(self, chunk: str) -> bytes:
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
                self._damaged.add(chunk)
                raise WorkerError(
                    "a chunk is damaged",
                    field=str(path),
                    found=found,
                    expected=chunk,
                    fix="Deploy again: it is fetched and verified",
                )
            self._verified.add(chunk)
        return content
