"""Cutting a parquet file into immutable chunks, streaming, with the held-out records split off first.

A chunk is a small parquet file named by its own SHA-256. Chunks do not depend on the fleet: they are cut
once, and every placement is row ranges in them. How much goes into one, with D the bytes of training text
and R the training records:

    at most max(1, R // 256) records         so that there are 256 chunks or more for any size of data set
    at most clamp(D / 1024, 1 MB, 64 MB)     so that a chunk is quick to move, and there are not millions
                                             (one record is never cut)

Two runs over the same file give the same bytes: fixed compression, no statistics, no time stamps, one thread
writing. Bytes may differ between versions of pyarrow; then they are other chunks with other names, and a
manifest names those that it was made with.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tailtrain.data import verify
from tailtrain.data.chunkfiles import ChunkWriter
from tailtrain.data.look import look_at
from tailtrain.data.manifest import ChunkFile, Manifest
from tailtrain.data.reading import chunk_schema, file_sha256, modest_memory, read_batches, text_spans
from tailtrain.data.split import Split, Totals, decide
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailtrain.data.inspect import DatasetFile

    Progress = Callable[[int, int], None]

MIN_CHUNKS = 256
"""Training chunks that a data set has at least, where it has that many records."""

_MIN_TARGET, _MAX_TARGET, _TARGET_CHUNKS = 1 << 20, 64 << 20, 1024


def cut(
    file: DatasetFile,
    domain: str,
    chunk_dir: Path,
    *,
    heldout_fraction: float = 0.02,
    progress: Progress | None = None,
) -> Manifest:
    """Cut a data set into chunk files and describe them.

    The file is read three times: to hash it, to split it, to write the chunks. Chunk files that are there
    already are hashed and kept if right.

    Args:
        file: the data set, as `inspect_parquet` found it.
        domain: what the manifest calls it.
        chunk_dir: where the chunk files go; made where it is missing.
        heldout_fraction: how much of it is never trained on (see `tailtrain.data.split`).
        progress: is called with records read so far and to read in all (each is read twice).

    Raises:
        DataError: the file is damaged or changes while it is read, or a chunk cannot be written.
    """
    before = look_at(file.path)
    digest = file_sha256(file)
    counter = _Counter(2 * file.records, progress)
    with modest_memory():
        split, totals = decide(read_batches(file), heldout_fraction, counter.add)
        train, heldout, byte_counts = _write(file, chunk_dir, split, totals, counter)
    if look_at(file.path) != before:
        raise DataError(
            "the data set's file changed while it was cut", field=str(file.path), fix="Run it again."
        )
    return Manifest(
        domain=domain,
        file=file.path.name,
        file_sha256=digest,
        file_bytes=file.bytes,
        records=file.records,
        text_column=file.text_column,
        columns=file.columns,
        heldout_fraction=heldout_fraction,
        train=train,
        heldout=heldout,
        train_records=totals.train_records,
        heldout_records=totals.heldout_records,
        train_text_bytes=totals.train_bytes,
        heldout_text_bytes=totals.heldout_bytes,
        byte_counts=byte_counts,
    )


def chunk_limits(train_records: int, train_bytes: int) -> tuple[int, int]:
    """Give the records and the bytes of text that one chunk holds at most (see the module's formula)."""
    target = min(max(train_bytes // _TARGET_CHUNKS, _MIN_TARGET), _MAX_TARGET)
    return max(1, train_records // MIN_CHUNKS), target


def _write(
    file: DatasetFile, chunk_dir: Path, split: Split, totals: Totals, counter: _Counter
) -> tuple[tuple[ChunkFile, ...], tuple[ChunkFile, ...], tuple[int, ...]]:
    limits = chunk_limits(totals.train_records, totals.train_bytes)
    schema = chunk_schema(file)
    byte_counts = [0] * 256
    try:
        chunk_dir.mkdir(parents=True, exist_ok=True)
        with (
            closing(ChunkWriter("train", chunk_dir, schema, *limits)) as train,
            closing(ChunkWriter("heldout", chunk_dir, schema, *limits)) as heldout,
        ):
            for batch in read_batches(file):
                to_train, to_hold_out = _parted(batch, split.mask(batch))
                _count_bytes(to_train, byte_counts)
                train.add(to_train)
                heldout.add(to_hold_out)
                counter.add(batch.num_rows)
            chunks = train.finish(), heldout.finish()
        _remember(chunk_dir, train.looks | heldout.looks)
        return *chunks, tuple(byte_counts)
    except OSError as error:
        raise DataError("a chunk cannot be written", field=str(chunk_dir), found=error.strerror) from error


def _remember(chunk_dir: Path, looks: dict[str, list[int]]) -> None:
    """Note what the chunks look like, so that they need not be hashed to know that they are right."""
    directory = os.open(chunk_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        now = time.time_ns()
        unchanged = {
            name: [*entry[:-1], now]
            for name, entry in looks.items()
            if verify.look((chunk_dir / name).lstat(), now)[:-1] == entry[:-1]
        }
        verify.save_record(directory, verify.load_record(directory) | unchanged)
    finally:
        os.close(directory)


def _parted(batch: pa.RecordBatch, mask: list[bool]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Give the records to train on and those to hold out; nothing is copied where all go one way."""
    if not any(mask):
        return batch, batch.slice(0, 0)
    if all(mask):
        return batch.slice(0, 0), batch
    held = pa.array(mask, pa.bool_())
    return batch.filter(pc.invert(held)), batch.filter(held)


@dataclass
class _Counter:
    total: int
    progress: Progress | None
    done: int = 0

    def add(self, records: int) -> None:
        self.done += records
        if self.progress:
            self.progress(self.done, self.total)


def _count_bytes(batch: pa.RecordBatch, counts: list[int]) -> None:
    data, spans = text_spans(batch)
    text = data[spans[0] : spans[-1]] if len(spans) else data[:0]
    if not text:
        return
    values = pa.Array.from_buffers(pa.uint8(), len(text), [None, pa.py_buffer(text)])
    for entry in pc.value_counts(values).to_pylist():
        counts[entry["values"]] += entry["counts"]
