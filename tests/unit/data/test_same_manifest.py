"""The same records give the same manifest and the same bytes, wherever, whenever and in whatever batches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailtrain.data import chunking, portions
from tailtrain.data.chunking import cut
from tailtrain.data.inspect import inspect_parquet

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.data.manifest import Manifest

RECORDS = 30_000
TABLE = pa.table(
    {
        "text": [f"record {n} " + f"{n * 2654435761 % 2**32:08x} " * (n % 90) for n in range(RECORDS)],
        "source": [f"file {n % 100}" for n in range(RECORDS)],
        "language": [None if n % 3 else "English" for n in range(RECORDS)],
    }
)


@pytest.fixture
def large_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of several row groups and many pages, as a data set of many gigabytes has them."""
    monkeypatch.setattr(chunking, "chunk_limits", lambda _records, _size: (20_000, 10 << 20))


@pytest.mark.usefixtures("large_chunks")
@pytest.mark.parametrize(
    "options", [{}, {"row_group_size": 77}, {"data_page_size": 1000}, {"compression": "gzip"}]
)
def test_the_bytes_of_large_chunks_do_not_depend_on_how_the_file_was_written(
    tmp_path: Path, options: dict[str, object]
) -> None:
    plain, other = tmp_path / "plain" / "texts.parquet", tmp_path / "other" / "texts.parquet"
    for path in (plain, other):
        path.parent.mkdir()
        pq.write_table(TABLE, path, **(options if path is other else {}))
    first = cut(inspect_parquet(plain), "natural", tmp_path / "chunks")
    second = cut(inspect_parquet(other), "natural", tmp_path / "chunks")
    assert (first.train, first.heldout) == (second.train, second.heldout)
    assert pq.read_metadata(tmp_path / "chunks" / first.train[0].sha256).num_row_groups > 1


@pytest.mark.usefixtures("large_chunks")
def test_nor_on_the_batches_in_which_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(TABLE, path)
    ids = set()
    for rows in (1024, 333, 17):
        monkeypatch.setattr(portions, "_BATCH_ROWS", rows)
        ids.add(cut(inspect_parquet(path), "natural", tmp_path / str(rows)).id)
    assert len(ids) == 1


def cut_elsewhere(path: Path, **environment: str) -> bytes:
    """Cut in another process with another environment; the manifest."""
    code = (
        "import sys, pathlib, locale; from tailtrain.data.inspect import inspect_parquet;"
        "from tailtrain.data.chunking import cut; p = pathlib.Path(sys.argv[1]);"
        "locale.setlocale(locale.LC_ALL, '');"
        "sys.stdout.buffer.write(cut(inspect_parquet(p), 'natural', p.parent / 'chunks').encode())"
    )
    argv = [sys.executable, "-c", code, str(path)]
    run = subprocess.run(argv, capture_output=True, check=True, env={**os.environ, **environment})
    return run.stdout


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Manifest]:
    path = tmp_path / "texts.parquet"
    pq.write_table(TABLE.slice(0, 2000), path)
    return path, cut(inspect_parquet(path), "natural", tmp_path / "first")


def test_another_folder_time_zone_locale_or_hash_seed_changes_nothing(
    small: tuple[Path, Manifest], tmp_path: Path
) -> None:
    path, manifest = small
    other = tmp_path / "another folder, \u00e9" / path.name
    other.parent.mkdir()
    shutil.copy(path, other)
    raw = manifest.encode()
    assert cut_elsewhere(path, TZ="Pacific/Kiritimati", PYTHONHASHSEED="1") == raw
    assert cut_elsewhere(other, TZ="America/St_Johns", LC_ALL="C", PYTHONHASHSEED="2") == raw


def test_cutting_again_over_what_is_there_writes_nothing(
    small: tuple[Path, Manifest], tmp_path: Path
) -> None:
    path, manifest = small

    def inodes() -> dict[str, int]:
        return {each.name: each.stat().st_ino for each in (tmp_path / "first").glob("[0-9a-f]*")}

    before = inodes()
    assert cut(inspect_parquet(path), "natural", tmp_path / "first") == manifest
    assert inodes() == before
