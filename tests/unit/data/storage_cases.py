"""What the storage tests share: packs, remotes that lead to stand-ins, and reading back as nodes do."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import socket
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from tailtrain.data.backends.find import find_remote
from tailtrain.data.backends.program import find_program
from tailtrain.data.backends.remote import node_flags
from tailtrain.data.packs import packs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tailtrain.data.backends.remote import Remote
    from tailtrain.data.packs import Pack
    from tailtrain.spec import StorageBackend

RCLONE = find_program(os.environ)


def make_packs(folder: Path, packs: int, size: int, chunks: int = 3) -> tuple[Pack, ...]:
    """Write chunks of some size into a folder, so many to a pack, and give the packs."""
    folder.mkdir(exist_ok=True)
    made: list[Pack] = []
    for number in range(packs):
        names = []
        for part in range(chunks):
            content = random.Random(f"{number} {part} {size}").randbytes(size // chunks)  # noqa: S311  # no secret
            name = hashlib.sha256(content).hexdigest()
            (folder / name).write_bytes(content)
            names.append((name, len(content)))
        made += packs_of(names)
    return tuple(made)


def variables(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """The environment in which rclone knows a remote."""
    return {f"RCLONE_CONFIG_{name}_{option}".upper(): value for option, value in options.items()}


def remote_at(
    backend: StorageBackend, options: Mapping[str, str], folder: str, tmp_path: Path, **settings: str
) -> Remote:
    """The remote `fleet` with these options, found as a deploy finds it."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | variables("fleet", options)
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    return find_remote(backend, remote=f"fleet:{folder}", project=project, environ=environ, **settings)


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class NodeReader:
    """Reads ranges of packs through `rclone serve http`, with a node's configuration and flags."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, pack: str, offset: int, size: int) -> bytes:
        """Bytes of a pack."""
        with closing(_Connection(self._path)) as connection:
            connection.request("GET", f"/{pack}", headers={"Range": f"bytes={offset}-{offset + size - 1}"})
            with connection.getresponse() as answer:
                assert answer.status == 206
                return answer.read()

    def damaged(self, packs: tuple[Pack, ...]) -> list[str]:
        """Names of packs of which some chunk has not its hash."""
        found = []
        for pack in packs:
            offset = 0
            for sha256, size in pack.chunks:
                if hashlib.sha256(self.read(pack.name, offset, size)).hexdigest() != sha256:
                    found.append(pack.name)
                    break
                offset += size
        return found


@contextmanager
def node(remote: Remote, tmp_path: Path) -> Iterator[NodeReader]:
    """What a node does to read: one rclone, with the configuration that a deploy gives it."""
    config = tmp_path / "storage.conf"
    config.touch(mode=0o600)
    config.write_text(remote.node_config())
    flags = list(node_flags(remote))
    if remote.ca_certificate:
        flags[flags.index("--ca-cert") + 1] = str(remote.ca_certificate)
    place = tmp_path / "rclone.socket"
    command = [RCLONE, "serve", "http", remote.packs_path, f"--addr=unix://{place}", f"--config={config}"]
    with subprocess.Popen([*command, "--read-only", *flags], stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(place, process)
            yield NodeReader(place)
        finally:
            process.terminate()
            process.wait()
            place.unlink(missing_ok=True)


def _wait_for(place: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as probing, suppress(OSError):
            probing.connect(str(place))
            return
        time.sleep(0.02)
    raise AssertionError("rclone serve http does not answer")
