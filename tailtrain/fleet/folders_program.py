"""Makes folders, and removes what is in them, without ever going through a symbolic link.

Runs on a host as plain Python, as root, and uses nothing but the standard library. The worker's account owns
some of these folders, so it could put a link to somebody else's folder in the place of one at any moment,
also between a check and its use. So every folder from the first of ours on is opened in the one before, as
a folder and nothing else, and all work is done on what is open.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import shutil
import stat
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Document = dict[str, Any]
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Refused(Exception):  # noqa: N818 - becomes a sentence of the reply, is no error of the program
    """Something is not as tailtrain makes it; the message names the path and says what it is."""


def step_into(parent: int, name: str, path: str, *, make: bool) -> int:
    """Open a folder in an open one, made first where it is missing and `make` is set.

    Raises:
        Refused: it is a link or no folder.
        FileNotFoundError: it is not there.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=parent)
            raise Refused(f"{path} is a symbolic link to {target!a}") from None
        if not stat.S_ISDIR(found.st_mode):
            raise Refused(f"{path} is no folder") from None
        raise Refused(f"{path} cannot be opened: {error.strerror}") from None


@contextlib.contextmanager
def opened(path: str, roots: list[str], *, make: bool = False) -> Iterator[int]:
    """A folder of ours, open. What is above our roots is the system's, and may have links.

    Raises:
        Refused: a part of the path is a link or no folder, or the path is not below a root.
        FileNotFoundError: it is not there.
    """
    path = os.path.normpath(path)
    root = next((root for root in roots if f"{path}/".startswith(f"{root}/")), None)
    if root is None:
        raise Refused(f"{path} is no place of tailtrain")
    place = os.path.dirname(root)
    here = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.path.relpath(path, place).split("/"):
            place = os.path.join(place, name)
            here, before = step_into(here, name, place, make=make), here
            os.close(before)
        yield here
    finally:
        os.close(here)


def make(path: str, owner: str, mode: str, roots: list[str]) -> None:
    """Make a folder with what is above it; it belongs to its owner and is closed as it should be.

    Raises:
        Refused: see `opened`.
    """
    with opened(path, roots, make=True) as folder:
        os.fchown(folder, pwd.getpwnam(owner).pw_uid, grp.getgrnam(owner).gr_gid)
        os.fchmod(folder, int(mode, 8))


def remove(path: str, roots: list[str]) -> None:
    """Remove a file, a link itself, or a folder with all in it; nothing, where it is not there.

    Raises:
        Refused: see `opened`.
    """
    if os.path.normpath(path) in roots:
        raise Refused(f"{path} is not removed: it holds all of tailtrain's")
    with contextlib.suppress(FileNotFoundError), opened(os.path.dirname(path), roots) as folder:
        name = os.path.basename(path)
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            # From within the open folder: rmtree takes no descriptor before Python 3.11. It follows no links.
            os.fchdir(folder)
            shutil.rmtree(name)
        else:
            os.unlink(name, dir_fd=folder)


def main() -> int:
    """Answer the request on standard input: make, then remove; the first thing that is amiss ends it."""
    request: Document = json.loads(sys.stdin.buffer.readline())
    reply = {"refused": ""}
    # What is above a folder must let the worker through, whatever the login's own mask is.
    os.umask(0o022)
    try:
        for path, owner, mode in request["make"]:
            make(path, owner, mode, request["roots"])
        for path in request["remove"]:
            remove(path, request["roots"])
    except Refused as refusal:
        reply["refused"] = str(refusal)
    except OSError as error:
        reply["refused"] = f"{error.filename or 'a folder'}: {error.strerror}"
    except KeyError as error:
        reply["refused"] = str(error.args[0])
    print(json.dumps(reply))
    return 0
