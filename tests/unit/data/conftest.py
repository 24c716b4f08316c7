"""What the data tests share: small parquet files, and data sets cut from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailtrain.data.chunking import cut
from tailtrain.data.inspect import inspect_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tailtrain.data.manifest import Manifest


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Path]:
    """Write a parquet file with the given texts in its `text` column."""

    def write(texts: Sequence[str | None], name: str = "texts.parquet", **columns: pa.Array) -> Path:
        path = tmp_path / name
        pq.write_table(pa.table({"text": pa.array(texts, pa.string()), **columns}), path)
        return path

    return write


@pytest.fixture
def dataset(parquet: Callable[..., Path], tmp_path: Path) -> tuple[Manifest, Path]:
    """Cut 600 records, and give the manifest and the folder of chunks."""
    file = inspect_parquet(parquet([f"record {number} " * (number % 7) for number in range(600)]))
    return cut(file, "natural", tmp_path / "chunks"), tmp_path / "chunks"
