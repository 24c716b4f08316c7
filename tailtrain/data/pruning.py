"""What the cache of cut data sets no longer needs.

The rule: a cut data set stays while it is declared, and for a time after it was last used. Then its entry in
the index goes; with it the manifest that no other entry names, and the chunks that no manifest left names.
What nobody can use at all (a damaged entry or manifest, what a cut that was stopped left behind) goes too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.data import cache
from tailtrain.data import manifest as manifests
from tailtrain.data.verify import TEMPORARY
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

DAY_SECONDS = 86_400

_CHUNK = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Freed:
    """What was removed, or would be: things of a kind, their files, and the bytes that this frees."""

    number: int = 0
    files: int = 0
    bytes: int = 0


def prune_cache(
    folder: Path, declared_ids: Collection[str], now: float, *, days: int = 30, dry_run: bool = False
) -> Freed:
    """Remove cut data sets that are not declared and have not been used for some days.

    Args:
        folder: the cache's; may be missing.
        declared_ids: ids of the manifests that are declared now.
        now: the present, in Unix seconds.
        days: how long a data set stays after its last use.
        dry_run: only say what would go.

    Returns:
        The number of data sets, with everything that goes with them.

    Raises:
        DataError: something cannot be removed.
    """
    if not folder.is_dir():
        return Freed()
    with cache.locked(folder):
        keep, gone = set(declared_ids), []
        for entry in sorted((folder / "index").glob("*.json")):
            named = cache.manifest_of(entry)
            if named in declared_ids:
                continue
            if named and now - entry.stat().st_mtime < days * DAY_SECONDS:
                keep.add(named)
            else:
                gone.append(entry)
        lost = [path for path in sorted((folder / "manifests").glob("*")) if path.stem not in keep]
        wanted = {chunk for kept in keep for chunk in _chunks(cache.manifest_path(folder, kept))}
        chunks = [
            path
            for path in sorted(cache.chunk_dir(folder).glob("*"))
            if _CHUNK.fullmatch(path.name) and path.name not in wanted
        ]
        stopped = list(folder.rglob(f"{TEMPORARY}*"))
        return removed(len(lost), {*gone, *lost, *chunks, *stopped}, dry_run=dry_run)


def removed(number: int, paths: Iterable[Path], *, dry_run: bool) -> Freed:
    """Remove files, or only count them.

    Raises:
        DataError: one cannot be removed.
    """
    files = sorted(paths)
    size = 0
    for path in files:
        try:
            size += path.lstat().st_size
            if not dry_run:
                path.unlink()
        except OSError as error:
            raise DataError("cannot be removed", field=str(path), found=error.strerror) from error
    return Freed(number, len(files), size)


def _chunks(path: Path) -> Iterable[str]:
    """The chunks of a manifest; none where it cannot be read: its data set has to be cut again anyway."""
    try:
        return [chunk.sha256 for chunk in manifests.load(path).chunks]
    except DataError:
        return []
