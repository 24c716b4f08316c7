"""Writing files into one folder, so that each is visible under its name only when its hash is right.

The source of this module is sent to a plain `python3` (3.9 or later) on a node, after that of
`tailtrain.data.verify`; it uses the standard library only.

A file is written under a temporary name in the same folder and hashed meanwhile, gets its mode and owner, is
flushed to the disk, and is then renamed. So, killed at any byte, what bears its name is whole. What a killed
writer left is swept by the next one: each writer holds a lock (flock) on its temporary file, which the system
takes from it when it ends, in whatever way, so a file whose lock can be had is nobody's work in progress.
The folder itself is locked for moments only; any number of writers may be at work in it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import hashlib
import itertools
import os
import pwd
import re
import stat
import threading
import time
from typing import TYPE_CHECKING

from tailtrain.data.verify import TEMPORARY, load_record, look, save_record, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

LOCK_SECONDS = 30
"""How long to wait for somebody else to be done with the folder, which takes moments."""

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
_numbers = itertools.count()


class Refused(Exception):  # noqa: N818 - it says what it is
    """Nothing more can be written; the message says why in plain words, `file` where."""

    def __init__(self, problem: str, file: str | None = None) -> None:
        super().__init__(problem)
        self.file = file


class WrongBytes(Refused):
    """What was to be written is not what was announced; the folder is in order."""


class Folder:
    """A folder that is written into; threads may share it.

    Args:
        path: must exist.
        mode: of the files, octal.
        owner: who will own them; without one, whoever runs this.
        group: the same for the group.
        reserve_bytes: how much of the disk must stay free.

    Raises:
        Refused: here and in every method.
    """

    def __init__(
        self,
        path: str,
        *,
        mode: str = "0640",
        owner: str | None = None,
        group: str | None = None,
        reserve_bytes: int = 0,
    ) -> None:
        if not _MODE.fullmatch(mode):
            raise Refused(f"the mode is not octal: {mode!r}")
        self.path = path
        self.mode = int(mode, 8)
        self.uid = _user(owner)
        self.gid = _group(group)
        self._reserve = reserve_bytes
        self._written: dict[str, list[int]] = {}
        self._guard = threading.Lock()
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise Refused(f"{path}: {plain(error)}") from error

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self.descriptor)

    def sweep(self) -> None:
        """Remove what killed writers left."""
        with self.locked():
            for name in os.listdir(self.descriptor):  # noqa: PTH208 - a descriptor, no path
                if name.startswith(TEMPORARY) and not self._in_progress(name):
                    try:
                        os.unlink(name, dir_fd=self.descriptor)
                    except FileNotFoundError:
                        pass
                    except OSError as error:
                        raise Refused(plain(error), name) from error

    def check_space(self, size: int, files: int) -> None:
        """Refuse before the first byte what would not fit: so many bytes in so many new files."""
        space = os.fstatvfs(self.descriptor)
        free = space.f_bavail * space.f_frsize
        if size and size + self._reserve > free:
            raise Refused(
                f"{self.path}: not enough space on the disk: {size} bytes to come and {self._reserve} "
                f"to keep free, {free} free"
            )
        # File systems that make inodes as needed report none at all.
        if space.f_files and files > space.f_favail:
            raise Refused(f"{self.path}: the file system has no inodes left for so many files")

    def has(self, name: str, sha256: str, size: int) -> bool:
        """Whether this very file is there; it is read to know."""
        try:
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            regular = stat.S_ISREG(status.st_mode) and status.st_size == size
            return regular and sha256_of(self.descriptor, name)[0] == sha256
        except OSError:
            return False

    def settle(self) -> None:
        """Make the renames last, and remember what was verified, so that nobody needs to read it again."""
        with self._guard:
            written, self._written = self._written, {}
        with contextlib.suppress(OSError, Refused):
            os.fsync(self.descriptor)
            if written:
                with self.locked():
                    self._remember(written)

    def _remember(self, written: dict[str, list[int]]) -> None:
        now = time.time_ns()
        record = load_record(self.descriptor)
        for name, entry in written.items():
            record.pop(name, None)
            # Only files that are named by their hash can be checked by it.
            if _SHA256.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
                    if look(status, 0)[:-1] == entry[:-1]:
                        record[name] = look(status, now)
        save_record(self.descriptor, record)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other writers and sweepers of the folder away; for moments."""
        # Opened anew, for a lock belongs to the opened file: so threads wait for each other as well.
        own = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.descriptor)
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Refused(f"{self.path}: somebody else keeps this folder locked") from None
                    time.sleep(0.02)
            yield
        finally:
            os.close(own)

    def wrote(self, name: str, status: os.stat_result) -> None:
        """Note what a file that was just written looks like, for `settle`."""
        with self._guard:
            self._written[name] = look(status, 0)

    def _in_progress(self, name: str) -> bool:
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.descriptor)
        except PermissionError:
            return True  # another user's, who will sweep it
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class Incoming:
    """A file that is being written; it is there under its name after `keep`, and never otherwise.

        with Incoming(folder, name, sha256, size) as file:
            while file.left:
                file.write(...)
            file.keep()

    Attributes:
        left: how many bytes are still to be written.

    Raises:
        Refused: the disk is full, and the like; here and in every method.
        WrongBytes: from `keep`.
    """

    def __init__(self, folder: Folder, name: str, sha256: str, size: int) -> None:
        self.left = size
        self._folder = folder
        self._name = name
        self._sha256 = sha256
        self._digest = hashlib.sha256()
        self._temporary = f"{TEMPORARY}{os.getpid()}.{next(_numbers)}-{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        # Nobody sweeps between these two.
        with self._plainly(), folder.locked():
            self._descriptor = os.open(self._temporary, flags, 0o600, dir_fd=folder.descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._temporary, dir_fd=self._folder.descriptor)
        os.close(self._descriptor)

    def write(self, block: memoryview) -> None:
        """Write the next bytes."""
        self._digest.update(block)
        self.left -= len(block)
        with self._plainly():
            while block:
                block = block[os.write(self._descriptor, block) :]

    def keep(self) -> None:
        """Give the file its name."""
        if self._digest.hexdigest() != self._sha256:
            raise WrongBytes(
                "the bytes that came are not those that were announced (SHA-256 differs)", self._name
            )
        directory = self._folder.descriptor
        with self._plainly():
            os.fchmod(self._descriptor, self._folder.mode)
            if self._folder.uid != -1 or self._folder.gid != -1:
                os.fchown(self._descriptor, self._folder.uid, self._folder.gid)
            os.fsync(self._descriptor)
            os.rename(self._temporary, self._name, src_dir_fd=directory, dst_dir_fd=directory)
            self._folder.wrote(self._name, os.fstat(self._descriptor))

    @contextlib.contextmanager
    def _plainly(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Refused(plain(error), self._name) from error


def plain(error: OSError) -> str:
    """Say in plain words what the system complains about."""
    return _PLAIN.get(error.errno or 0) or error.strerror or str(error)


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
