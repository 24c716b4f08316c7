"""Data sets that are cut already: nothing is read again while the file has not changed.

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
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from tailtrain.data import manifest as manifests
from tailtrain.data.chunking import cut
from tailtrain.data.reading import file_sha256
from tailtrain.data.verify import TEMPORARY
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tailtrain.data.inspect import DatasetFile
    from tailtrain.data.manifest import Manifest


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
    file: DatasetFile,
    domain: str,
    cache_dir: Path,
    *,
    heldout_fraction: float = 0.02,
    thorough: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Give a data set's manifest, cutting it only if that has not been done or did not last.

    The file counts as unchanged when its size, times and inode are the same, or else when its hash is. All of
    its chunks must be there with the right size.

    Args:
        file: the data set, as `inspect_parquet` found it.
        domain: what the manifest calls it.
        cache_dir: the cache's folder; made where it is missing.
        heldout_fraction: as for `cut`.
        thorough: hash all chunk files too, and cut again what is damaged.
        progress: as for `cut`; not called where nothing is cut.

    Raises:
        DataError: as `cut` does, or the cache cannot be written.
    """
    index = cache_dir / "index" / f"{_key(file, domain, heldout_fraction)}.json"
    with _locked(cache_dir):
        known = _known(index, cache_dir)
        if known:
            entry, manifest = known
            look = _look(file, entry.sha256, entry.manifest)
            same = look == entry or file_sha256(file) == entry.sha256
            if same and _complete(manifest, chunk_dir(cache_dir), thorough=thorough):
                if look != entry:
                    manifests.write_atomically(index, msgspec.json.encode(look))
                return manifest
        for leftover in chunk_dir(cache_dir).glob(f"{TEMPORARY}*"):
            leftover.unlink(missing_ok=True)
        manifest = cut(
            file, domain, chunk_dir(cache_dir), heldout_fraction=heldout_fraction, progress=progress
        )
        manifests.save(manifest, manifest_path(cache_dir, manifest.id).parent)
        entry = _look(file, manifest.file_sha256, manifest.id)
        manifests.write_atomically(index, msgspec.json.encode(entry))
        return manifest


def _known(index: Path, cache_dir: Path) -> tuple[_Entry, Manifest] | None:
    """Read what the cache knows; a cache that is damaged knows nothing."""
    try:
        entry = msgspec.json.decode(index.read_bytes(), type=_Entry)
        return entry, manifests.load(manifest_path(cache_dir, entry.manifest))
    except (OSError, msgspec.DecodeError, DataError):
        return None


def _complete(manifest: Manifest, folder: Path, *, thorough: bool) -> bool:
    if thorough:
        findings = manifests.verify_chunks(manifest, folder)
        return not findings["missing"] and not findings["damaged"]
    for chunk in manifest.chunks:
        try:
            if (folder / chunk.sha256).stat().st_size != chunk.bytes:
                return False
        except OSError:
            return False
    return True


def _look(file: DatasetFile, sha256: str, manifest_id: str) -> _Entry:
    try:
        status = file.path.stat()
    except OSError as error:
        raise DataError(
            "the data set's file cannot be read", field=str(file.path), found=error.strerror
        ) from error
    return _Entry(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, sha256, manifest_id)


def _key(file: DatasetFile, domain: str, heldout_fraction: float) -> str:
    what = [str(file.path.resolve()), domain, file.text_column, heldout_fraction]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@contextmanager
def _locked(cache_dir: Path) -> Iterator[None]:
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
