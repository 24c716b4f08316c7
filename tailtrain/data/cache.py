"""Data sets that are cut already: nothing is read again while the file has not changed.

Then pyarrow is not imported either, which would take longer than all the rest of a deploy's planning.

The cache is a folder, safe to delete at any time:

    chunks/<sha256>          chunk files of all data sets
    manifests/<id>.json      their manifests
    index/<key>.json         for each file and way to cut it: what the file looked like, its id
    .lock                    held while something is cut
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from tailtrain.data import manifest as manifests
from tailtrain.data.look import look_at
from tailtrain.data.verify import TEMPORARY
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tailtrain.data.manifest import Manifest

_DAY_SECONDS = 86_400


class _Entry(msgspec.Struct, frozen=True):
    """What the file looked like when it was cut, and what came of it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str
    manifest: str


def chunk_dir(cache_dir: Path) -> Path:
    """Where the cache keeps chunk files."""
    return cache_dir / "chunks"


def manifest_path(cache_dir: Path, manifest_id: str) -> Path:
    """Where the cache keeps the manifest with this id."""
    return cache_dir / "manifests" / f"{manifest_id}.json"


def ensure_dataset(
    path: Path,
    domain: str,
    cache_dir: Path,
    *,
    heldout_fraction: float = 0.02,
    thorough: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Give a data set's manifest, cutting it only if that has not been done or did not last.

    The file counts as unchanged when its size, times and inode are the same, or else when its hash is. So do
    its chunks, all of which must be there; where one is missing or damaged, all are cut again.

    Args:
        path: the parquet file.
        domain: what the manifest calls it.
        cache_dir: the cache's folder; made where it is missing.
        heldout_fraction: as for `cut`.
        thorough: hash all chunk files, also those that have not changed.
        progress: as for `cut`; not called where nothing is cut.

    Raises:
        DataError: as `inspect_parquet` and `cut` do, or the cache cannot be written.
    """
    index = cache_dir / "index" / f"{_key(path, domain, heldout_fraction)}.json"
    with locked(cache_dir):
        known = _known(index, cache_dir)
        complete = known is not None and _complete(known[1], chunk_dir(cache_dir), thorough=thorough)
        if known and complete and _is_as(path, known[0]):
            _note_use(index)
            return known[1]
        return _renewed(
            path, domain, cache_dir, index, known if complete else None, heldout_fraction, progress
        )


def check_dataset(path: Path, domain: str, cache_dir: Path, *, heldout_fraction: float = 0.02) -> None:
    """Say what is wrong with a file as far as its ends tell; one that is cut already is not opened.

    Raises:
        DataError: as `inspect_parquet`.
    """
    if known_manifest(path, domain, cache_dir, heldout_fraction=heldout_fraction) is None:
        from tailtrain.data.inspect import inspect_parquet  # noqa: PLC0415 - see the top

        inspect_parquet(path)


def _renewed(
    path: Path,
    domain: str,
    cache_dir: Path,
    index: Path,
    known: tuple[_Entry, Manifest] | None,
    heldout_fraction: float,
    progress: Callable[[int, int], None] | None,
) -> Manifest:
    """Read the file: to find that it is what is `known` after all, or to cut it."""
    from tailtrain.data.chunking import cut  # noqa: PLC0415 - it needs pyarrow; see the top
    from tailtrain.data.inspect import inspect_parquet  # noqa: PLC0415 - as above
    from tailtrain.data.reading import file_sha256  # noqa: PLC0415 - as above

    file = inspect_parquet(path)
    if known and file_sha256(file) == known[0].sha256:
        manifest = known[1]
    else:
        for leftover in chunk_dir(cache_dir).glob(f"{TEMPORARY}*"):
            leftover.unlink(missing_ok=True)
        manifest = cut(
            file, domain, chunk_dir(cache_dir), heldout_fraction=heldout_fraction, progress=progress
        )
        manifests.save(manifest, manifest_path(cache_dir, manifest.id).parent)
    manifests.write_atomically(index, msgspec.json.encode(_look(path, manifest.file_sha256, manifest.id)))
    return manifest


def known_manifest(path: Path, domain: str, cache_dir: Path, *, heldout_fraction: float = 0.02) -> str | None:
    """The id of the manifest that a file has been cut to, None where it has not, or looks otherwise now."""
    known = _known(cache_dir / "index" / f"{_key(path, domain, heldout_fraction)}.json", cache_dir)
    return known[0].manifest if known and _is_as(path, known[0]) else None


def manifest_of(index: Path) -> str | None:
    """The id of the manifest that an entry of the index names, None where the entry is damaged."""
    try:
        return msgspec.json.decode(index.read_bytes(), type=_Entry).manifest
    except (OSError, msgspec.DecodeError):
        return None


def _note_use(index: Path) -> None:
    """Remember, to the day, that a cut data set is in use."""
    if time.time() - index.stat().st_mtime > _DAY_SECONDS:
        os.utime(index)


def _known(index: Path, cache_dir: Path) -> tuple[_Entry, Manifest] | None:
    """Read what the cache knows; a cache that is damaged knows nothing."""
    try:
        entry = msgspec.json.decode(index.read_bytes(), type=_Entry)
        return entry, manifests.load(manifest_path(cache_dir, entry.manifest))
    except (OSError, msgspec.DecodeError, DataError):
        return None


def _complete(manifest: Manifest, folder: Path, *, thorough: bool) -> bool:
    """Whether all chunks are there and right; those that have not changed are not read to know it."""
    findings = manifests.verify_chunks(manifest, folder, thorough=thorough)
    return not findings["missing"] and not findings["damaged"]


def _is_as(path: Path, entry: _Entry) -> bool:
    """Whether the file looks as it did when it was cut; one that is missing does not."""
    try:
        return _look(path, entry.sha256, entry.manifest) == entry
    except DataError:
        return False


def _look(path: Path, sha256: str, manifest_id: str) -> _Entry:
    return _Entry(*look_at(path), sha256, manifest_id)


def _key(path: Path, domain: str, heldout_fraction: float) -> str:
    try:
        place = path.resolve()
    except (OSError, RuntimeError) as error:  # links that lead to themselves
        raise DataError("the data set's file cannot be found", field=str(path), found=error) from error
    what = [str(place), domain, heldout_fraction]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@contextmanager
def locked(cache_dir: Path) -> Iterator[None]:
    """Let one process at a time work in the cache; the others wait."""
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise DataError(
            "the cache of data sets cannot be written", field=str(cache_dir), found=error.strerror
        ) from error
