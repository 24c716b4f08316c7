"""Looking at files and folders on a host where the worker's account may have put anything in their place.

Its source is sent to the host before that of `tailtrain.fleet.probe_program`; it changes nothing, and uses
nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import os
import pwd
import stat
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import BinaryIO

Document = dict[str, Any]
MOST_BYTES = 64 << 20
"""More than any text file of ours has."""


def open_file(path: str) -> BinaryIO:
    """A regular file, open. Links and pipes, which the worker's account can make, raise OSError."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is no regular file")
    return file


def read(path: str) -> str | None:
    """The text of a file of ours, None where it is missing, too large, no text or no regular file."""
    try:
        with open_file(path) as file:
            content = file.read(MOST_BYTES + 1)
            return content.decode() if len(content) <= MOST_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def read_system(path: str) -> str:
    """The text of a file of the system, which may be a link; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def is_plain(folder: str) -> bool:
    """Whether a folder and the one that it is in are folders, neither a link: the account can make links."""
    try:
        return all(stat.S_ISDIR(os.lstat(path).st_mode) for path in (folder, os.path.dirname(folder)))
    except OSError:
        return False


def names_in(folder: str) -> list[str]:
    """What is in a folder of ours; nothing where it is none."""
    return sorted(os.listdir(folder)) if is_plain(folder) else []


def read_json(path: str) -> Document:
    """A JSON object from a file, empty where there is none."""
    try:
        document = json.loads(read(path) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def sha256_of(path: str) -> str:
    """SHA-256 of a regular file, empty where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open_file(path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def complete(folder: str, needed: str = "") -> list[str]:
    """Names in a folder whose building was finished, the newest first; those without a needed program not."""
    marks = {}
    for name in names_in(folder):
        place = os.path.join(folder, name)
        if is_plain(place) and (not needed or os.access(os.path.join(place, needed), os.X_OK)):
            with contextlib.suppress(OSError):
                marks[name] = os.lstat(os.path.join(place, ".complete")).st_mtime
    return sorted(marks, key=lambda name: (-marks[name], name))


def mode_of(path: str) -> str | None:
    """Permissions and owners of a file, in one word list."""
    try:
        found = os.lstat(path)
        owner, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name
    except (KeyError, OSError):
        return None
    return f"{stat.S_IMODE(found.st_mode):04o} {owner}:{group}"


def bytes_under(folder: str) -> int:
    """What the files of a folder have together."""
    return sum(
        os.lstat(os.path.join(place, name)).st_size for place, _, names in os.walk(folder) for name in names
    )


def when(path: str) -> str | None:
    """When a file was last written, to the minute, in UTC."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(os.lstat(path).st_mtime))
    except OSError:
        return None


def may_read(name: str, found: os.stat_result) -> bool:
    """Whether an account may read a file; nothing is said against one while there is no account."""
    try:
        uid, gid = pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid
    except KeyError:
        return True
    if found.st_uid == uid:
        return bool(found.st_mode & stat.S_IRUSR)
    return bool(found.st_mode & (stat.S_IRGRP if found.st_gid == gid else stat.S_IROTH))
