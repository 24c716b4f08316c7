"""Files that are either the old ones or the new ones, never half of either."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from tailtrain.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_RETIRED = ".old"


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, no spaces and a newline at the end: equal values give equal bytes."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def write_atomically(path: Path, content: bytes, *, mode: int = 0o640) -> None:
    """Replace `path` as one step: a temporary file beside it, mode, fsync, rename, fsync of the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def append_line(path: Path, content: bytes) -> None:
    """Add one line and make it durable; a line that a crash cut short is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def publish_directory(path: Path, files: Iterable[tuple[str, bytes]], *, mode: int = 0o750) -> None:
    """Make a directory appear as one step, replacing one of the same name.

    Files are taken one after the other, so that no more than one need be in memory. Where it fails,
    nothing of the new directory stays; what a killed process leaves is for `clear_unpublished`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True, mode=mode)
        for name, content in files:
            write_atomically(temporary / name, content)
        if path.exists():
            retired = path.with_name(f".{path.name}{_RETIRED}")
            shutil.rmtree(retired, ignore_errors=True)
            path.rename(retired)
            temporary.rename(path)
            shutil.rmtree(retired)
        else:
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(path.parent)


def clear_unpublished(folder: Path, prefix: str) -> None:
    """Remove what killed processes left of directories of this name in `folder`, which none is writing now.

    One that was taken away for a new one that never came is put back.
    """
    for left in folder.glob(f".{prefix}*"):
        path = left.with_name(left.name.removeprefix(".").removesuffix(_RETIRED))
        if left.name.endswith(_RETIRED) and not path.exists():
            left.rename(path)
        else:
            shutil.rmtree(left, ignore_errors=True)


def cannot_write(problem: str, *, host: str, folder: Path, error: OSError, fix: str) -> WorkerError:
    """What an error while writing means to who has to mend it: where, and how many bytes are free there.

    Args:
        problem: one sentence in plain words.
        host: this node.
        folder: what was written to; it need not be there yet.
        error: what the system said.
        fix: what to do.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    found = f"{error.strerror or error}, {free:,} bytes free"
    return WorkerError(problem, host=host, field=str(folder), found=found, fix=fix)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
