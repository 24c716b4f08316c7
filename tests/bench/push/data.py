"""The data set that is pushed: its records are alike from run to run, and hardly to be compressed.

So a chunk on the wire is what a chunk on the disk is, and the figures say how data moves, not how it packs.
"""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 65_318
"""As many as the specification's first data set has."""

_GROUP = 4096
_SCHEMA = pa.schema([("text", pa.string())])


def make(path: Path, megabytes: int) -> None:
    """Write a parquet file of about this size, unless it is there; its chunks have that size together."""
    if path.exists():
        return
    chance = random.Random(17)  # noqa: S311 - keeps no secret
    mean = megabytes * 1_000_000 // RECORDS
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with pq.ParquetWriter(beside, _SCHEMA, compression="zstd") as writer:
        for start in range(0, RECORDS, _GROUP):
            texts = [
                # Base64 makes four letters of three bytes, which compression undoes.
                base64.b64encode(chance.randbytes(chance.randint(mean // 2, mean * 3 // 2))).decode()
                for _ in range(start, min(start + _GROUP, RECORDS))
            ]
            writer.write_table(pa.table({"text": texts}, schema=_SCHEMA))
    beside.replace(path)
