"""Records of a parquet file, streamed in small batches, whatever wrote the file.

Every writer's way of storing strings (plain, large, views, dictionaries; nulls; one huge row group or many
empty ones) comes out as the same thing: batches of a few megabytes with a `text` column of plain strings
that are valid UTF-8, and `source` and `language` where the file has them. A null text is an empty record:
it counts, so that the records read are those that the file's footer promises.

Memory is bounded whatever the file's size: how many rows are asked for at a time follows from the sizes of
the file's pages (`tailtrain.data.pages`), and a page that is too large to unpack is refused before that.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailtrain.data.portions import BUFFER_BYTES, MOST_RECORD_BYTES, Portions, rewrite
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailtrain.data.inspect import DatasetFile


def chunk_schema(file: DatasetFile) -> pa.Schema:
    """Give the columns that batches of this file, and chunks made from it, have."""
    return pa.schema([("text", pa.string()), *((name, pa.string()) for name in file.about_columns)])


def read_batches(file: DatasetFile) -> Iterator[pa.RecordBatch]:
    """Yield all records of a file in order, as batches with the columns of `chunk_schema`.

    Raises:
        DataError: a page is damaged or too large, a text is too long or not valid UTF-8, or the file ends
            before its footer says so.
    """
    schema = chunk_schema(file)
    columns = [file.text_column, *file.about_columns]
    done = 0
    for batch in raw_batches(file.path, columns, bounded=True):
        try:
            text = batch.column(file.text_column).cast(pa.string()).fill_null("")
            about = [batch.column(name).cast(pa.string()) for name in file.about_columns]
        except pa.ArrowException as error:
            raise _unreadable(file.path, done, error) from error
        plain = pa.RecordBatch.from_arrays([text, *about], schema=schema)
        _check_texts(file, plain, done)
        done += plain.num_rows
        yield plain
    if done != file.records:
        raise DataError(
            "the parquet file has not the records that its footer promises",
            field=str(file.path),
            found=done,
            expected=file.records,
        )


def raw_batches(path: Path, columns: Sequence[str], *, bounded: bool) -> Iterator[pa.RecordBatch]:
    """Yield some columns of a parquet file as they are, in batches of rows that fit into little memory.

    Args:
        path: the file.
        columns: by name; each there once.
        bounded: refuse pages that take much memory.

    Raises:
        DataError: a page is damaged, or takes too much memory.
    """
    done = 0
    try:
        with (
            path.open("rb") as stream,
            pq.ParquetFile(path, pre_buffer=False, memory_map=False, buffer_size=BUFFER_BYTES) as parquet,
        ):
            plan = Portions(path, stream, parquet.metadata, columns, bounded=bounded)
            for rows, groups in groupby(range(parquet.num_row_groups), plan.rows_at_once):
                # Without threads, for each of them would keep memory of its own.
                for batch in parquet.iter_batches(rows, list(groups), columns, use_threads=False):
                    done += batch.num_rows
                    yield batch
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, done, error) from error


def _check_texts(file: DatasetFile, batch: pa.RecordBatch, done: int) -> None:
    """Check that all texts are valid UTF-8 and none is too long; `done` records came before."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as problem:
        for name, column in zip((file.text_column, *file.about_columns), batch.columns, strict=True):
            for row, value in enumerate(column.cast(pa.binary()).to_pylist()):
                try:
                    (value or b"").decode()
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"record {done + row} of the column {name} is not valid UTF-8",
                        field=str(file.path),
                        found=f"the byte {value[error.start]:#04x} at {error.start}",
                        fix=f"{rewrite(file.path)} (what is not valid is replaced there).",
                    ) from None
        raise _unreadable(file.path, done, problem) from problem
    longest = pc.max(pc.binary_length(batch.column("text"))).as_py() or 0
    if longest > MOST_RECORD_BYTES:
        raise DataError(
            f"a text in the column {file.text_column} is too long to train on",
            field=str(file.path),
            found=f"{longest:,} bytes, after record {done}",
            expected=f"{MOST_RECORD_BYTES:,} bytes or less",
            fix=f"{rewrite(file.path)} (long texts become several records there).",
        )


def _unreadable(path: Path, done: int, error: Exception) -> DataError:
    return DataError(
        f"the parquet file cannot be read beyond record {done}",
        field=str(path),
        found=str(error).splitlines()[0],
        fix="Build or copy it again.",
    )


@contextmanager
def modest_memory() -> Iterator[None]:
    """Let Arrow use an allocator that gives back at once what is freed; its usual one keeps much of it."""
    before = pa.default_memory_pool()
    if "jemalloc" in pa.supported_memory_backends():
        pa.jemalloc_set_decay_ms(0)
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    else:
        pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def text_spans(batch: pa.RecordBatch) -> tuple[memoryview, memoryview]:
    """Give a batch's text as its UTF-8 bytes and the offsets between records (one more than records).

    Both are views: nothing is copied, so hashing a record costs the hash and no more.
    """
    text = batch.column("text")
    _, offsets, data = text.buffers()
    spans = memoryview(offsets).cast("B").cast("i")[text.offset : text.offset + len(text) + 1]
    return (memoryview(data).cast("B") if data is not None else memoryview(b"")), spans


def file_sha256(file: DatasetFile) -> str:
    """Hash the whole file; hex."""
    try:
        with file.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError("the file cannot be read", field=str(file.path), found=error.strerror) from error
