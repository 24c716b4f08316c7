"""Making one parquet file, fit to train on, from text, JSON lines, databases, source trees, other parquet."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tailtrain.data.database import sqlite_records
from tailtrain.data.files import Skipped
from tailtrain.data.reading import modest_memory
from tailtrain.data.sources import Options, Record, code_records, jsonl_records, text_records
from tailtrain.data.tables import parquet_records
from tailtrain.data.verify import TEMPORARY
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    Progress = Callable[[int, int], None]

Kind = Literal["text", "jsonl", "sqlite", "code", "parquet"]

_READERS = {
    "text": text_records,
    "jsonl": jsonl_records,
    "sqlite": sqlite_records,
    "code": code_records,
    "parquet": parquet_records,
}
# Records are gathered until one of these is reached, and then written as a row group.
_GROUP_BYTES, _GROUP_ROWS = 8 << 20, 8192


@dataclass(frozen=True)
class Summary:
    """What was built.

    Attributes:
        output: the parquet file.
        records: its rows.
        text_bytes: bytes of text in it (UTF-8, before compression).
        file_bytes: its size.
        skipped: what was left out, and why.
    """

    output: Path
    records: int
    text_bytes: int
    file_bytes: int
    skipped: Skipped


def build_dataset(
    kind: Kind,
    inputs: Sequence[Path],
    output: Path,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Read inputs and write them as one parquet file.

    The file has the columns `text` (for source trees `content`), `source` and `language` (null where
    unknown). The same inputs give the same bytes. Memory is bounded, whatever the inputs' size. An
    existing output is replaced when the new one is whole, not before.

    Args:
        kind: what the inputs are.
        inputs: files and folders.
        output: the parquet file to write; its folder is made where it is missing.
        options: how to read.
        progress: is called with how much was read and how much there is: bytes, for databases rows.

    Raises:
        DataError: an input is missing or wrong, nothing was found in them, or the output cannot be written.
    """
    skipped = Skipped()
    records = _READERS[kind](inputs, options or Options(), skipped, progress or (lambda _done, _total: None))
    with modest_memory():
        summary = write_records(records, output, text_column="content" if kind == "code" else "text")
    if summary is None:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.counts.most_common())
        raise DataError(
            "there is no record in what was given",
            field=", ".join(map(str, inputs)),
            found=reasons or f"no {kind} files",
        )
    return Summary(output, *summary, skipped)


def write_records(
    records: Iterable[Record],
    output: Path,
    *,
    text_column: str,
    about: dict[str, str] | None = None,
) -> tuple[int, int, int] | None:
    """Write records to a parquet file, atomically.

    Args:
        records: what to write.
        output: the file; its folder is made where it is missing.
        text_column: what to call the column of texts.
        about: is kept in the file's metadata.

    Returns:
        Records, bytes of text and bytes of the file; None where there were no records, and then no file.

    Raises:
        DataError: it cannot be written.
    """
    schema = pa.schema([(text_column, pa.string()), ("source", pa.string()), ("language", pa.string())])
    temporary = output.with_name(f"{TEMPORARY}{os.getpid()}-{output.name}")
    count = text_bytes = 0
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            use_dictionary=["source", "language"],
            write_statistics=False,
        ) as writer:
            for group, size in _groups(records):
                columns = [
                    [record.text for record in group],
                    [record.source for record in group],
                    [record.language for record in group],
                ]
                writer.write_table(pa.table(columns, schema=schema))
                count += len(group)
                text_bytes += size
            writer.add_key_value_metadata(about or {})
        if count == 0:
            return None
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        file_bytes = temporary.stat().st_size
        temporary.replace(output)
    except OSError as error:
        raise DataError(
            "the parquet file cannot be written", field=str(output), found=error.strerror or error
        ) from error
    finally:
        # What went wrong is said above; that there is nothing to clean up is no second fault.
        with contextlib.suppress(OSError):
            temporary.unlink()
    return count, text_bytes, file_bytes


def _groups(records: Iterable[Record]) -> Iterator[tuple[list[Record], int]]:
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.text.encode())
        if size >= _GROUP_BYTES or len(group) == _GROUP_ROWS:
            yield group, size
            group, size = [], 0
    if group:
        yield group, size
