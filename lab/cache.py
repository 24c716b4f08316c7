"""Directories that are slow to make, kept under a key that says what they were made from.

A directory is made under a temporary name, while a lock is held, and renamed when it is whole. So it is
there or not there, never half made, and two processes never make it twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_KEY_LENGTH = 16


def digest(*parts: str | bytes) -> str:
    """A key for what a directory is made from: 16 hexadecimal digits of the parts' SHA-256."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return hasher.hexdigest()[:_KEY_LENGTH]


def made(parent: Path, key: str, make: Callable[[Path], None]) -> Path:
    """The directory `parent/key`, made by `make` (which is given an empty directory) if it is not there."""
    final = parent / key
    if final.is_dir():
        os.utime(final)  # `prune` goes by when it was last used
        return final
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent / f".{key}.lock"):
        if final.is_dir():
            return final
        unfinished = parent / f".{key}.unfinished"
        remove_tree(unfinished)  # left by a process that was killed
        unfinished.mkdir()
        make(unfinished)
        unfinished.rename(final)
    return final


def prune(cache: Path, kinds: Iterable[str], in_use: Iterable[Path], *, older_than: float) -> list[Path]:
    """Remove what no `made` has asked for in this many seconds; gives what was removed.

    Args:
        cache: the directory that holds one directory for each kind.
        kinds: which of them to look through.
        in_use: paths in the cache whose entries stay, however old.
        older_than: seconds since the last use.
    """
    used = [path.resolve() for path in in_use]
    limit = time.time() - older_than
    removed = []
    for kind in kinds:
        if not (cache / kind).is_dir():
            continue
        for entry in sorted((cache / kind).iterdir()):
            stays = any(path.is_relative_to(entry.resolve()) for path in used)
            if entry.name.startswith(".") or stays or entry.stat().st_mtime > limit:
                continue
            remove_tree(entry)
            removed.append(entry)
    return removed


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it, if it is there."""
    if path.exists():
        shutil.rmtree(path)


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a file; the lock ends with the process, however it ends.

    The file is removed at the end, so whoever waited for it takes a fresh look. `waiting` is called once if
    somebody else holds the lock.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
                waiting = None
            fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            current = path.stat().st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            current = False
        if current:
            break
        os.close(fd)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)
