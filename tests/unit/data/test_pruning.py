"""What the cache lets go of: what is not declared and was not used for some days; nothing that is needed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tailtrain.data.cache import chunk_dir, ensure_dataset, manifest_path
from tailtrain.data.manifest import verify_chunks
from tailtrain.data.pruning import DAY_SECONDS, Freed, prune_cache
from tailtrain.data.verify import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailtrain.data.manifest import Manifest

NOW = time.time()
OLD = NOW - 31 * DAY_SECONDS


class Cache:
    """A cache of a few data sets, each last used at some time."""

    def __init__(self, parquet: Callable[..., Path], folder: Path) -> None:
        self.parquet, self.folder = parquet, folder

    def cut(self, name: str, used: float, texts: list[str] | None = None) -> Manifest:
        path = self.parquet(texts or [f"{name} {number}" for number in range(40)], f"{name}.parquet")
        before = set(self.index())
        manifest = ensure_dataset(path, "natural", self.folder)
        for entry in set(self.index()) - before:
            os.utime(entry, (used, used))
        return manifest

    def index(self) -> list[Path]:
        return sorted((self.folder / "index").glob("*.json"))

    def prune(self, *declared: Manifest, days: int = 30, dry_run: bool = False) -> Freed:
        return prune_cache(self.folder, {each.id for each in declared}, NOW, days=days, dry_run=dry_run)

    def whole(self, manifest: Manifest) -> bool:
        there = manifest_path(self.folder, manifest.id).exists()
        return there and not verify_chunks(manifest, chunk_dir(self.folder))["missing"]

    def size(self) -> int:
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.name[0] != "."]
        return sum(path.stat().st_size for path in files)


@pytest.fixture
def cache(parquet: Callable[..., Path], tmp_path: Path) -> Cache:
    return Cache(parquet, tmp_path / "cache")


def test_what_is_declared_or_was_used_lately_stays(cache: Cache) -> None:
    declared, lately, old = cache.cut("a", OLD), cache.cut("b", NOW - DAY_SECONDS), cache.cut("c", OLD)
    freed = cache.prune(declared)
    assert freed.number == 1
    assert cache.whole(declared)
    assert cache.whole(lately)
    assert not manifest_path(cache.folder, old.id).exists()
    assert not any((chunk_dir(cache.folder) / chunk.sha256).exists() for chunk in old.chunks)
    assert len(cache.index()) == 2
    assert cache.prune(declared) == Freed()


def test_it_frees_what_it_says_and_a_dry_run_nothing(cache: Cache) -> None:
    kept = cache.cut("a", NOW)
    alone = cache.size()
    cache.cut("b", OLD)
    both = cache.size()
    would = cache.prune(kept, dry_run=True)
    assert cache.size() == both
    assert cache.prune(kept) == would
    assert cache.size() == alone
    assert would.bytes == both - alone


def test_chunks_that_a_kept_data_set_shares_stay(cache: Cache) -> None:
    """The same file under two names, cut twice: one manifest each, the same chunks."""
    texts = [f"shared {number}" for number in range(40)]
    old, kept = cache.cut("old", OLD, texts), cache.cut("kept", NOW, texts)
    assert {chunk.sha256 for chunk in old.chunks} == {chunk.sha256 for chunk in kept.chunks}
    cache.prune(kept)
    assert cache.whole(kept)


def test_what_nobody_can_use_goes(cache: Cache) -> None:
    kept = cache.cut("a", NOW)
    (chunk_dir(cache.folder) / f"{TEMPORARY}1-train").write_bytes(b"half")
    (chunk_dir(cache.folder) / ("0" * 64)).write_bytes(b"of nobody")
    (cache.folder / "manifests" / ("1" * 64 + ".json")).write_bytes(b"{}")
    (cache.folder / "index" / "2.json").write_bytes(b"{")
    cache.prune(kept)
    left = {path.name for path in cache.folder.rglob("*") if path.is_file()}
    assert not left & {f"{TEMPORARY}1-train", "0" * 64, "1" * 64 + ".json", "2.json"}
    assert cache.whole(kept)


def test_zero_days_leave_what_is_declared(cache: Cache) -> None:
    declared, other = cache.cut("a", NOW), cache.cut("b", NOW - 1)
    assert cache.prune(declared, days=0).number == 1
    assert cache.whole(declared)
    assert not cache.whole(other)


def test_a_cache_that_is_not_there_is_empty(cache: Cache) -> None:
    assert cache.prune() == Freed()
    assert not cache.folder.exists()


def test_using_a_data_set_is_remembered(cache: Cache) -> None:
    cache.cut("a", OLD)
    cache.cut("a", NOW)
    (entry,) = cache.index()
    assert entry.stat().st_mtime > OLD
