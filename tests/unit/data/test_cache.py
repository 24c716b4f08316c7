"""The cache: what is cut stays cut, what is lost is cut again, what changed is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailtrain.data import verify
from tailtrain.data.cache import check_dataset, chunk_dir, ensure_dataset, manifest_path
from tailtrain.data.manifest import verify_chunks
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailtrain.data.manifest import Manifest

TEXTS = [f"record {number}" for number in range(100)]


class Cutter:
    """Ensures one data set, and knows whether that read the file."""

    def __init__(self, path: Path, cache: Path) -> None:
        self.path = path
        self.cache = cache
        self.read = False

    def __call__(self, *, thorough: bool = False, fraction: float = 0.02) -> Manifest:
        self.read = False

        def progress(_done: int, _total: int) -> None:
            self.read = True

        return ensure_dataset(
            self.path, "natural", self.cache, heldout_fraction=fraction, thorough=thorough, progress=progress
        )


@pytest.fixture
def cutter(parquet: Callable[..., Path], tmp_path: Path) -> Cutter:
    return Cutter(parquet(TEXTS), tmp_path / "cache")


def test_the_second_time_nothing_is_read(cutter: Cutter) -> None:
    first = cutter()
    assert cutter.read
    assert manifest_path(cutter.cache, first.id).exists()
    assert cutter() == first
    assert not cutter.read


def test_the_second_time_pyarrow_is_not_even_imported(cutter: Cutter) -> None:
    first = cutter()
    program = (
        "import sys; from pathlib import Path; from tailtrain.data.cache import ensure_dataset;"
        "print(ensure_dataset(Path(sys.argv[1]), 'natural', Path(sys.argv[2])).id, 'pyarrow' in sys.modules)"
    )
    argv = [sys.executable, "-W", "error", "-c", program, str(cutter.path), str(cutter.cache)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert said.split() == [first.id, "False"]


def test_a_touched_file_is_hashed_but_not_cut_again(cutter: Cutter) -> None:
    first = cutter()
    os.utime(cutter.path, ns=(1, 1))
    assert cutter() == first
    assert not cutter.read


def test_a_changed_file_is_cut_again_even_with_its_old_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path, compression="none", use_dictionary=False)
    cutter = Cutter(path, tmp_path / "cache")
    first = cutter()
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"record 77", b"RECORD 77"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert cutter().id != first.id
    assert cutter.read


def test_a_missing_or_short_chunk_is_cut_again(cutter: Cutter) -> None:
    first = cutter()
    one, other = (chunk_dir(cutter.cache) / chunk.sha256 for chunk in first.train[:2])
    one.unlink()
    os.truncate(other, 5)
    leftover = chunk_dir(cutter.cache) / ".tmp-1-train"
    leftover.touch()
    assert cutter() == first
    assert cutter.read
    assert one.exists()
    assert other.stat().st_size == first.train[1].bytes
    assert not leftover.exists()


def test_a_flipped_bit_with_the_old_size_and_time_is_found_and_repaired(cutter: Cutter) -> None:
    first = cutter()
    chunk = chunk_dir(cutter.cache) / first.train[0].sha256
    before, right = chunk.stat(), chunk.read_bytes()
    with chunk.open("r+b") as stream:
        stream.write(bytes([right[0] ^ 1]))
    os.utime(chunk, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cutter() == first
    assert cutter.read
    assert chunk.read_bytes() == right


def test_what_the_disk_itself_alters_is_found_and_repaired_when_asked_for(
    cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that errs leaves all times as they were; here what is remembered is changed to match instead."""
    monkeypatch.setattr(verify, "SETTLED_NS", 0)
    first = cutter()
    chunk = chunk_dir(cutter.cache) / first.train[0].sha256
    right = chunk.read_bytes()
    chunk.write_bytes(bytes([right[0] ^ 1]) + right[1:])
    directory = os.open(chunk.parent, os.O_RDONLY)
    remembered = verify.load_record(directory)
    remembered[chunk.name] = verify.look(chunk.stat(), time.time_ns())
    verify.save_record(directory, remembered)
    os.close(directory)
    assert cutter() == first
    assert not cutter.read
    assert cutter(thorough=True) == first
    assert cutter.read
    assert chunk.read_bytes() == right


def test_chunks_that_have_not_changed_are_not_read_to_know_that_they_are_right(
    cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "SETTLED_NS", 0)
    first = cutter()
    found = verify_chunks(first, chunk_dir(cutter.cache), thorough=False)
    assert (found["missing"], found["damaged"], found["hashed"]) == ([], {}, 0)


@pytest.mark.parametrize("victim", ["index", "manifests"])
def test_a_damaged_cache_knows_nothing_and_recovers(cutter: Cutter, victim: str) -> None:
    first = cutter()
    for path in (cutter.cache / victim).iterdir():
        path.write_bytes(b"{")
    assert cutter() == first
    assert cutter() == first
    assert not cutter.read


def test_another_fraction_is_another_data_set(cutter: Cutter) -> None:
    assert cutter().id != cutter(fraction=0.5).id
    cutter()
    assert not cutter.read


def test_a_file_that_leads_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop.parquet").symlink_to("loop.parquet")
    with pytest.raises(DataError, match="the data set's file cannot be found"):
        check_dataset(tmp_path / "loop.parquet", "natural", tmp_path / "cache")


def test_checking_says_what_is_wrong_and_cuts_nothing(cutter: Cutter, tmp_path: Path) -> None:
    check_dataset(cutter.path, "natural", cutter.cache)
    assert not cutter.cache.exists()
    cutter()
    check_dataset(cutter.path, "natural", cutter.cache)
    cutter.path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match="truncated"):
        check_dataset(cutter.path, "natural", cutter.cache)
    with pytest.raises(DataError, match="missing"):
        check_dataset(tmp_path / "none.parquet", "natural", cutter.cache)
