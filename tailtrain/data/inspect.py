"""What is in a parquet file: records, bytes, schema and text column, all read from the file itself.

A data set is declared by its file alone. Everything that can be wrong with that file is found here, before
anything else happens, except damage inside the pages, which only reading them shows
(`tailtrain.data.reading`).
"""

from __future__ import annotations

import glob
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tailtrain.data.portions import rewrite
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TEXT_COLUMNS = ("text", "content", "code")
"""The names that a text column goes by; the first one that a file has is taken."""

ABOUT_COLUMNS = ("source", "language")
"""Columns that say where a record is from; they go along where a file has them as strings."""

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_PLAIN = "one without encryption"
# What follows the footer's content where columns are encrypted: a nonce of 12 bytes and a tag of 16 (the
# format's `Encryption.md`). pyarrow ends the process when it is asked for such a column's place.
_SIGNATURE = 28
# Unpacked, a footer takes fourteen times as much; one of 13 MB has 100,000 row groups of one column.
_MOST_FOOTER_BYTES = 12 << 20


@dataclass(frozen=True)
class DatasetFile:
    """A parquet file that can be trained on.

    Attributes:
        path: where it is.
        records: its rows.
        bytes: its size on disk.
        columns: name and Arrow type of each column, in the file's order.
        text_column: the column that holds the text.
        about_columns: those of `ABOUT_COLUMNS` that it has as strings.
        text_bytes_estimate: bytes of all columns before compression, as the file's footer says; a guess at
            how much memory a record takes, no more.
    """

    path: Path
    records: int
    bytes: int
    columns: tuple[tuple[str, str], ...]
    text_column: str
    about_columns: tuple[str, ...]
    text_bytes_estimate: int


def inspect_parquet(
    path: Path,
    *,
    text_column: str | None = None,
    names: Sequence[str] = TEXT_COLUMNS,
    to_convert: bool = False,
) -> DatasetFile:
    """Read a file's footer and say what it holds.

    Args:
        path: the parquet file.
        text_column: the column to train on; by default the first of `names` that is there.
        names: what a text column may be called.
        to_convert: the file is to be written anew, so it may have no records, and bytes may be text.

    Raises:
        DataError: the file is missing, unreadable, empty, truncated, encrypted or no parquet file, has no
            records, or has no text column or one of another type than string.
    """
    size, footer_size = _sizes(path)
    if _MOST_FOOTER_BYTES < footer_size < size and not to_convert:
        raise DataError(
            "the parquet file's footer takes too much memory: it has too many row groups or columns",
            field=str(path),
            found=f"{footer_size:,} bytes",
            expected=f"{_MOST_FOOTER_BYTES:,} bytes or less",
            fix=rewrite(path),
        )
    try:
        with pq.ParquetFile(path, pre_buffer=False, memory_map=False) as parquet:
            schema, metadata = parquet.schema_arrow, parquet.metadata
            if footer_size - metadata.serialized_size == _SIGNATURE:
                raise DataError("columns of the parquet file are encrypted", field=str(path), expected=_PLAIN)
            records = int(metadata.num_rows)
            row_groups = range(metadata.num_row_groups)
            uncompressed = sum(int(metadata.row_group(index).total_byte_size) for index in row_groups)
            first = metadata.row_group(0) if row_groups and metadata.num_columns else None
            elsewhere = first.column(0).file_path if first else ""
            columns = tuple((each.name, str(each.type)) for each in schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            "the parquet file is damaged: its footer cannot be read", field=str(path), found=error
        ) from error
    if elsewhere:
        raise DataError(
            "this is only the index of a folder of parquet files",
            field=str(path),
            found=f"columns in {elsewhere}",
            fix=rewrite(path.parent),
        )
    if records == 0 and not to_convert:
        raise DataError(
            "the parquet file has no records", field=str(path), found="0 rows", expected="1 row or more"
        )
    column = _text_column(path, schema, text_column, names, to_convert=to_convert)
    return DatasetFile(
        path=path,
        records=records,
        bytes=size,
        columns=columns,
        text_column=column,
        about_columns=tuple(
            name
            for name in ABOUT_COLUMNS
            if name != column and schema.names.count(name) == 1 and is_text(schema.field(name).type)
        ),
        text_bytes_estimate=uncompressed,
    )


def is_text(kind: pa.DataType) -> bool:
    """Say whether an Arrow type is text: string, large_string, string_view, or a dictionary of these."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Say whether an Arrow type is bytes that may be text: binary, large_binary, binary_view."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _sizes(path: Path) -> tuple[int, int]:
    """Check that `path` is a whole parquet file by its first and last bytes; its size, and its footer's."""
    expected = "a parquet file"
    try:
        if path.is_dir():
            parts = next(path.rglob("*.parquet"), None)
            raise DataError(
                "the data set is a folder",
                field=str(path),
                found=parts and "parquet files",
                expected="one parquet file",
                fix=rewrite(path)
                if parts
                else "Make one with: tailtrain dataset build text FOLDER --output FILE",
            )
        with path.open("rb") as stream:
            head = stream.read(len(_MAGIC))
            size = stream.seek(0, 2)
            stream.seek(max(0, size - 2 * len(_MAGIC)))
            footer_size, tail = stream.read(4), stream.read(4)
    except FileNotFoundError as error:
        if glob.has_magic(str(path)):
            raise DataError(
                "the data set's file is named by a pattern",
                field=str(path),
                expected="one parquet file",
                fix=f"Make one with: tailtrain dataset build parquet {path} --output FILE",
            ) from error
        raise DataError(
            "the data set's file is missing",
            field=str(path),
            expected=expected,
            fix="Make it with: tailtrain dataset build (or, the demo's: make dataset)",
        ) from error
    except OSError as error:
        raise DataError(
            "the data set's file cannot be read", field=str(path), found=error.strerror, expected=expected
        ) from error
    if size == 0:
        raise DataError("the data set's file is empty", field=str(path), found="0 bytes", expected=expected)
    if _ENCRYPTED_MAGIC in (head, tail):
        raise DataError("the parquet file is encrypted", field=str(path), expected=_PLAIN)
    if head != _MAGIC:
        raise DataError(
            "this is not a parquet file",
            field=str(path),
            found=f"a file that starts with {head!r}",
            expected=expected,
            fix="Make one with: tailtrain dataset build text|jsonl|sqlite|code INPUT --output FILE",
        )
    if tail != _MAGIC:
        raise DataError(
            "the parquet file is truncated: its end is missing",
            field=str(path),
            found=f"{size} bytes, the last of them {tail!r}",
            expected=f"an end of {_MAGIC!r}",
            fix="Copy or build it again.",
        )
    return size, int.from_bytes(footer_size, "little")


def _text_column(
    path: Path, schema: pa.Schema, wanted: str | None, may_be: Sequence[str], *, to_convert: bool
) -> str:
    names = list(schema.names)
    has = (
        f"the columns {', '.join(f'{each.name} ({each.type})' for each in schema)}" if names else "no columns"
    )
    if wanted is None:
        wanted = next((name for name in may_be if name in names), None)
        if wanted is None:
            raise DataError(
                "the parquet file has no text column",
                field=str(path),
                found=has,
                expected=f"one of {', '.join(may_be)}",
                fix="Name it with --field."
                if to_convert
                else f"Call the column to train on {may_be[0]}, or name it. {rewrite(path)} --field COLUMN",
            )
    if names.count(wanted) != 1:
        problem = "has no column of that name" if wanted not in names else "has two columns of that name"
        raise DataError(f"the parquet file {problem}: {wanted}", field=str(path), found=has)
    kind = schema.field(wanted).type
    if not is_text(kind) and not (to_convert and is_bytes(kind)):
        raise DataError(
            f"the column {wanted} does not hold text",
            field=str(path),
            found=kind,
            expected="string, large_string or a dictionary of strings",
            fix=f"{rewrite(path)} (bytes become text there)." if is_bytes(kind) else None,
        )
    return wanted
