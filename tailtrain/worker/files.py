"""Files that are either the old ones or the new ones, never half of either."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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

    Files are taken one after the other, so that no more than one need be in memory.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True, mode=mode)
    for name, content in files:
        write_atomically(temporary / name, content)
    if path.exists():
        retired = path.with_name(f".{path.name}.old")
        shutil.rmtree(retired, ignore_errors=True)
        path.rename(retired)
        temporary.rename(path)
        shutil.rmtree(retired)
    else:
        temporary.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
