"""Records of a parquet file, streamed in small batches, whatever wrote the file.

Every writer's way of storing strings (plain, large, views, dictionaries; nulls; one huge row group or many
empty ones) comes out as the same thing: batches of a few megabytes with a `text` column of plain strings
that are valid UTF-8, and `source` and `language` where the file has them. A null text is an empty record:
it counts, so that the records read are those that the file's footer promises.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailtrain.data.inspect import DatasetFile

BATCH_BYTES = 4 << 20
"""About how much text one batch holds."""

_BATCH_ROWS = 1024
# A column chunk is read through a buffer of this size instead of whole: a row group may be gigabytes.
_BUFFER_BYTES = 1 << 20


def chunk_schema(file: DatasetFile) -> pa.Schema:
    """Give the columns that batches of this file, and chunks made from it, have."""
    return pa.schema([("text", pa.string()), *((name, pa.string()) for name in file.about_columns)])


def read_batches(file: DatasetFile) -> Iterator[pa.RecordBatch]:
    """Yield all records of a file in order, as batches with the columns of `chunk_schema`.

    Raises:
        DataError: a page is damaged, a text is not valid UTF-8, or the file ends before its footer says so.
    """
    schema = chunk_schema(file)
    row_bytes = max(1, file.text_bytes_estimate // file.records)
    rows = max(1, min(_BATCH_ROWS, BATCH_BYTES // row_bytes))
    done = 0
    try:
        with pq.ParquetFile(
            file.path, pre_buffer=False, memory_map=False, buffer_size=_BUFFER_BYTES
        ) as parquet:
            columns = [file.text_column, *file.about_columns]
            for batch in parquet.iter_batches(batch_size=rows, columns=columns):
                text = batch.column(file.text_column).cast(pa.string()).fill_null("")
                about = [batch.column(name).cast(pa.string()) for name in file.about_columns]
                plain = pa.RecordBatch.from_arrays([text, *about], schema=schema)
                plain.validate(full=True)
                done += plain.num_rows
                yield plain
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"the parquet file cannot be read beyond record {done}",
            field=str(file.path),
            found=str(error).splitlines()[0],
            fix="Build or copy it again.",
        ) from error
    if done != file.records:
        raise DataError(
            "the parquet file has not the records that its footer promises",
            field=str(file.path),
            found=done,
            expected=file.records,
        )


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
