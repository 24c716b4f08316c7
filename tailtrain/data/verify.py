"""Which files of a folder are what their names say: found quickly, by hashing only what changed.

Runs on the nodes too: the source of this module is sent to a plain `python3` (3.9 or later), so it uses the
standard library only and imports nothing of this project.

A folder remembers in `.verified.json` what each file looked like when its hash was last known to be right:
size, time of the last write, inode and time of the last change (ctime). No program can set a ctime, so a
file that was written, replaced, or changed and given its old times again shows. As in git's index, a file
that changed less than two seconds before it was hashed is not trusted the next time, for a second write in
the same tick of the clock would not show. What the disk itself alters shows only with `thorough`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORD = ".verified.json"
"""What a folder remembers of its files."""

TEMPORARY = ".tmp-"
"""How the names of files begin that are still being written."""

SETTLED_NS = 2_000_000_000
"""How long a file must have been left alone before its hash is remembered for good."""

_FORMAT = 1
_BLOCK = 1 << 20


class Findings(TypedDict):
    """How a folder differs from what is wanted.

    `missing` and `extra` are names, `damaged` maps a name to what is wrong with it in plain words, `hashed`
    is how many bytes had to be read to know.
    """

    missing: list[str]
    damaged: dict[str, str]
    extra: list[str]
    hashed: int


def examine(folder: str, wanted: Mapping[str, int], *, thorough: bool = False) -> Findings:
    """Compare a folder with the files that it should have.

    Args:
        folder: where the files are; where it does not exist, everything is missing.
        wanted: size in bytes of each file by its SHA-256, which is its name.
        thorough: hash every file, also those that have not changed.

    Raises:
        OSError: the folder cannot be read.
    """
    found: Findings = {"missing": [], "damaged": {}, "extra": [], "hashed": 0}
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        found["missing"] = sorted(wanted)
        return found
    try:
        remembered = load_record(directory)
        good: dict[str, list[int]] = {}
        names = set(os.listdir(directory))
        for name in sorted(wanted):
            if name not in names:
                found["missing"].append(name)
                continue
            try:
                entry, hashed = _check(
                    directory, name, wanted[name], None if thorough else remembered.get(name)
                )
            except OSError as error:
                found["damaged"][name] = f"cannot be read: {error.strerror}"
            except ValueError as error:
                found["damaged"][name] = str(error)
            else:
                good[name] = entry
                found["hashed"] += hashed
        found["extra"] = sorted(name for name in names if name not in wanted and not name.startswith("."))
        # What is remembered of files that nobody asked about here stays, as long as they are there.
        kept = {name: entry for name, entry in remembered.items() if name in names and name not in wanted}
        if {**kept, **good} != remembered:
            # A folder that cannot be written can still be examined; only the next time is slower.
            with contextlib.suppress(OSError):
                save_record(directory, {**kept, **good})
    finally:
        os.close(directory)
    return found


def tree_sha256(files: Mapping[str, str]) -> str:
    """Give the hash of a tree of files, in hex: of each one's path and SHA-256, in the order of the paths."""
    lines = "".join(f"{path}\0{digest}\n" for path, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def tree(folder: str) -> dict[str, str]:
    """Give the SHA-256 of every file under a folder by its path in it; a link is never the same as a file.

    Hidden files and what Python keeps beside its sources are passed over.

    Raises:
        OSError: something cannot be read.
    """
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if not name.startswith("."):
                path = os.path.join(place, name)
                target = os.readlink(path) if os.path.islink(path) else None
                if target is None:
                    with open(path, "rb") as file:
                        found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
                else:
                    found[os.path.relpath(path, folder)] = f"link to {target}"
    return found


def look(status: os.stat_result, known_at_ns: int) -> list[int]:
    """Give what is remembered of a file whose hash was known to be right at `known_at_ns` (Unix time)."""
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns, known_at_ns]


def load_record(directory: int) -> dict[str, list[int]]:
    """Read what the folder (a descriptor) remembers; nothing, where that is missing or damaged."""
    try:
        descriptor = os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as stream:
            record = json.load(stream)
        if record["format"] != _FORMAT:
            return {}
        return {str(name): [int(value) for value in entry] for name, entry in record["files"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def save_record(directory: int, files: Mapping[str, list[int]]) -> None:
    """Write what the folder (a descriptor) remembers, atomically."""
    content = json.dumps({"format": _FORMAT, "files": dict(files)}, sort_keys=True).encode()
    temporary = f"{TEMPORARY}{os.getpid()}{RECORD}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=directory), "wb") as stream:
            stream.write(content)
        os.replace(temporary, RECORD, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)


def sha256_of(directory: int, name: str) -> tuple[str, os.stat_result]:
    """Hash a file of the folder (a descriptor); give the hash in hex, and what the hashed file looks like.

    What it looks like is taken from the open file, whatever the name means by then.

    Raises:
        OSError: it cannot be read, or is a symbolic link.
    """
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory), "rb", buffering=0) as stream:
        digest = hashlib.sha256()
        while block := stream.read(_BLOCK):
            digest.update(block)
        return digest.hexdigest(), os.fstat(stream.fileno())


def _check(directory: int, name: str, size: int, remembered: list[int] | None) -> tuple[list[int], int]:
    """Give what to remember of a right file, and the bytes hashed; ValueError says what is wrong with it."""
    now = time.time_ns()
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is not a regular file")
    if status.st_size != size:
        raise ValueError(f"has {status.st_size} bytes instead of {size}")
    if remembered and remembered[:-1] == look(status, now)[:-1] and _settled(remembered):
        return remembered, 0
    digest, hashed = sha256_of(directory, name)
    if digest != name:
        raise ValueError("has other content than its name says")
    return look(hashed, now), size


def _settled(entry: list[int]) -> bool:
    known_at, changed_at = entry[-1], entry[-2]
    return known_at - changed_at >= SETTLED_NS
