"""Receiving files on a node: from standard input into one folder, each visible only when its hash is right.

The source of this module is sent to a plain `python3` (3.9 or later) on the node, after that of
`tailtrain.data.verify`; it uses the standard library only. Standard input is one line of JSON:

    {"folder": "/var/lib/tailtrain/chunks", "owner": "tailtrain", "group": "tailtrain", "mode": "0640",
     "reserve_bytes": 1000000000, "files": [{"name": "...", "sha256": "...", "size": 123}, ...]}

and then the bytes of the files, one after the other, nothing between them. `owner`, `group`, `mode` and
`reserve_bytes` may be left out. Standard output is one line of JSON, see `main`.

A file is written under a temporary name in the same folder and hashed meanwhile, gets its mode and owner,
is flushed to the disk, and is then renamed. So, killed at any byte, what bears its name is whole, and the
next run sweeps what does not. A file that is there already and right is left alone, its bytes are skipped.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import hashlib
import json
import os
import pwd
import re
import signal
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from tailtrain.data.verify import RECORD, TEMPORARY, load_record, look, save_record, sha256_of

if TYPE_CHECKING:
    from types import FrameType

IDLE_SECONDS = 300
"""How long the sender may be silent before the transfer counts as dead."""

LOCK_SECONDS = 30
"""How long to wait for another transfer into the same folder."""

_BLOCK = 1 << 20
# Chunks, manifests, wheels, units: never `..`, a hidden name or a path.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MODE = re.compile(r"0?[0-7]{3}")
_PLAIN = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.EIO: "the disk reports an error",
    errno.ENOENT: "the folder does not exist",
    errno.ENOTDIR: "this is not a folder",
    errno.EISDIR: "a folder is in the way",
}


class Refused(Exception):  # noqa: N818 - it says what it is
    """The transfer cannot go on; the message says why in plain words, `file` where."""

    def __init__(self, problem: str, file: str | None = None) -> None:
        super().__init__(problem)
        self.file = file


class Receiver:
    """One transfer into one folder.

    Attributes:
        received: files that were written.
        skipped: files that were there already.
        bytes: what was written.
    """

    def __init__(self, options: dict[str, Any], stream: BinaryIO) -> None:
        self.received = 0
        self.skipped = 0
        self.bytes = 0
        self._stream = stream
        self._block = memoryview(bytearray(_BLOCK))
        self._folder = str(options["folder"])
        self._files = [_checked(each) for each in options["files"]]
        self._reserve = int(options.get("reserve_bytes") or 0)
        mode = str(options.get("mode") or "0640")
        if not _MODE.fullmatch(mode):
            raise Refused(f"the mode is not octal: {mode!r}")
        self._mode = int(mode, 8)
        self._uid = _user(options.get("owner"))
        self._gid = _group(options.get("group"))
        self._written: dict[str, list[int]] = {}

    def run(self) -> None:
        """Receive all files; Refused says why not."""
        try:
            directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise Refused(f"{self._folder}: {_plain(error)}") from error
        try:
            self._lock(directory)
            self._sweep(directory)
            there = {name for name, sha256, size in self._files if _is_right(directory, name, sha256, size)}
            self._check_space(directory, there)
            try:
                for name, sha256, size in self._files:
                    if name in there:
                        self._skip(name, size)
                    else:
                        self._receive(directory, name, sha256, size)
            finally:
                self._settle(directory)
        finally:
            os.close(directory)

    def _lock(self, directory: int) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Refused(f"{self._folder}: another transfer into this folder is running") from None
                time.sleep(0.2)
            else:
                return

    def _sweep(self, directory: int) -> None:
        """Remove what a killed transfer left; under the lock, so it is nobody's work in progress."""
        for name in os.listdir(directory):
            if name.startswith(TEMPORARY):
                try:
                    os.unlink(name, dir_fd=directory)
                except OSError as error:
                    raise Refused(_plain(error), name) from error

    def _check_space(self, directory: int, there: set[str]) -> None:
        """Refuse before the first byte what would not fit."""
        needed = sum(size for name, _, size in self._files if name not in there)
        space = os.fstatvfs(directory)
        free = space.f_bavail * space.f_frsize
        if needed and needed + self._reserve > free:
            raise Refused(
                f"{self._folder}: not enough space on the disk: {needed} bytes to come and {self._reserve} "
                f"to keep free, {free} free"
            )
        # File systems that make inodes as needed report none at all.
        if space.f_files and len(self._files) - len(there) > space.f_favail:
            raise Refused(f"{self._folder}: the file system has no inodes left for so many files")

    def _skip(self, name: str, size: int) -> None:
        while size:
            size -= len(self._read(name, size))
        self.skipped += 1

    def _receive(self, directory: int, name: str, sha256: str, size: int) -> None:
        temporary = f"{TEMPORARY}{os.getpid()}-{name}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=directory), "wb", buffering=0) as file:
                digest = hashlib.sha256()
                left = size
                while left:
                    block = self._read(name, left)
                    digest.update(block)
                    left -= len(block)
                    while block:
                        block = block[file.write(block) :]
                if digest.hexdigest() != sha256:
                    raise Refused(
                        "the bytes that came are not those that were announced (SHA-256 differs)", name
                    )
                os.fchmod(file.fileno(), self._mode)
                if self._uid != -1 or self._gid != -1:
                    os.fchown(file.fileno(), self._uid, self._gid)
                os.fsync(file.fileno())
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                self._written[name] = look(os.fstat(file.fileno()), time.time_ns())
        except OSError as error:
            raise Refused(_plain(error), name) from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
        self.received += 1
        self.bytes += size

    def _read(self, name: str, most: int) -> memoryview:
        """Read some bytes, at least one and at most `most`."""
        signal.alarm(IDLE_SECONDS)
        count = self._stream.readinto1(self._block[: min(most, _BLOCK)])  # type: ignore[attr-defined]
        signal.alarm(0)
        if not count:
            raise Refused(f"the sender stopped early, {most} bytes of the file were still to come", name)
        return self._block[:count]

    def _settle(self, directory: int) -> None:
        """Make the renames last, and remember what was verified, so that no probe needs to read it again."""
        with contextlib.suppress(OSError):
            os.fsync(directory)
            now = time.time_ns()
            record = load_record(directory)
            for name in self._written:
                record.pop(name, None)
            for name, entry in self._written.items():
                entry[-1] = now
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                # Only files that are named by their hash can be checked by it.
                if look(status, now) == entry and _SHA256.fullmatch(name):
                    record[name] = entry
            if self._written:
                save_record(directory, record)


def main() -> int:
    """Receive from standard input and say how it went, as one line of JSON on standard output.

    {"ok": true, "received": files, "skipped": files, "bytes": written, "seconds": s}, exit code 0; or with
    "ok": false, "error": plain words and "file": the name concerned or null, exit code 1. After an error the
    rest of the input is read and thrown away, so that the sender's side of the connection ends in order.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stopped)
    signal.signal(signal.SIGALRM, _silent)
    started = time.monotonic()
    stream = sys.stdin.buffer
    receiver: Receiver | None = None
    problem: Refused | None = None
    try:
        receiver = Receiver(json.loads(stream.readline()), stream)
        receiver.run()
    except Refused as error:
        problem = error
    except (ValueError, KeyError, TypeError) as error:
        problem = Refused(f"the transfer's first line is not understood: {error!r}")
    answer: dict[str, Any] = {
        "ok": problem is None,
        "received": receiver.received if receiver else 0,
        "skipped": receiver.skipped if receiver else 0,
        "bytes": receiver.bytes if receiver else 0,
        "seconds": round(time.monotonic() - started, 3),
    }
    if problem:
        answer.update(error=str(problem), file=problem.file)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    if problem:
        with contextlib.suppress(Refused, OSError):
            _drain(stream)
        return 1
    return 0


def _drain(stream: BinaryIO) -> None:
    while True:
        signal.alarm(IDLE_SECONDS)
        if not stream.read(_BLOCK):
            return


def _checked(entry: dict[str, Any]) -> tuple[str, str, int]:
    name, sha256, size = str(entry["name"]), str(entry["sha256"]), int(entry["size"])
    if not _NAME.fullmatch(name) or name == RECORD:
        raise Refused(f"this is not a name for a file here: {name!r}", name)
    if not _SHA256.fullmatch(sha256) or size < 0:
        raise Refused("its SHA-256 or size is not one", name)
    return name, sha256, size


def _is_right(directory: int, name: str, sha256: str, size: int) -> bool:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        regular = stat.S_ISREG(status.st_mode) and status.st_size == size
        return regular and sha256_of(directory, name)[0] == sha256
    except OSError:
        return False


def _user(name: str | None) -> int:
    try:
        return pwd.getpwnam(name).pw_uid if name else -1
    except KeyError:
        raise Refused(f"there is no user {name!r} here") from None


def _group(name: str | None) -> int:
    try:
        return grp.getgrnam(name).gr_gid if name else -1
    except KeyError:
        raise Refused(f"there is no group {name!r} here") from None


def _plain(error: OSError) -> str:
    return _PLAIN.get(error.errno or 0) or error.strerror or str(error)


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise Refused(f"stopped by {signal.Signals(number).name}")


def _silent(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Refused(f"the sender was silent for {IDLE_SECONDS} seconds")
