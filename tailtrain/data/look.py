"""What a file looks like from outside: enough to say that it did not change, without reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailtrain.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


class Look(NamedTuple):
    """Size in bytes, times in nanoseconds, and inode."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def look_at(path: Path) -> Look:
    """Look at a data set's file.

    Raises:
        DataError: it is not there, or may not be looked at.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(
            "the data set's file cannot be read", field=str(path), found=error.strerror
        ) from error
    return Look(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
