"""Records from parquet files of any shape: many at once, bytes for text, texts too long to train on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tailtrain.data.files import PROSE_BREAKS, Skipped, decode, find, split_text
from tailtrain.data.inspect import inspect_parquet
from tailtrain.data.reading import raw_batches
from tailtrain.data.sources import FIELD_NAMES, REPLACED, Options, Record, one_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Progress = Callable[[int, int], None]


def parquet_records(
    inputs: Sequence[Path], options: Options, skipped: Skipped, progress: Progress
) -> Iterator[Record]:
    """Yield the texts in parquet files and folders of them, in the order of their names.

    So the parts that a Spark job left become one data set. Memory is that of the largest page.

    Raises:
        DataError: a file is damaged or encrypted, or its text column cannot be told; names the file.
    """
    files = find(inputs, skipped, wanted=lambda name: name.endswith(".parquet"))
    total = sum(file.size for file in files)
    before = 0
    for each in files:
        file = inspect_parquet(each.path, text_column=options.field, names=FIELD_NAMES, to_convert=True)
        row = 0
        for batch in raw_batches(file.path, [file.text_column, *file.about_columns], bounded=False):
            columns = (
                _as_bytes(batch.column(name)) if name in batch.schema.names else [None] * batch.num_rows
                for name in (file.text_column, "source", "language")
            )
            for value, source, language in zip(*columns, strict=True):
                row += 1
                if value is None:
                    skipped.add("empty", f"{each.name}:{row}")
                    continue
                text, replaced = decode(value)
                if replaced:
                    skipped.add(REPLACED, f"{each.name}:{row}")
                name, kind = (decode(about)[0] if about else None for about in (source, language))
                for piece in split_text(text, options.max_record_bytes, PROSE_BREAKS):
                    yield from one_record(piece, name or each.name, kind, skipped)
            progress(before + each.size * row // file.records, total)
        before += each.size


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values
