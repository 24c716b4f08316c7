"""What the tests of pulling share: real chunk servers and a real backend, and pulls by the real program."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtrain.data.packs import PACK_FOLDER, Pack, packs_of, places_of
from tailtrain.data.pull_backend import RcloneRemote
from tailtrain.data.verify import RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

CHECKOUT = Path(__file__).resolve().parents[3]
RCLONE = str(Path(sys.executable).parent / "rclone")
SIZES = (1, 70_000, 300_000, 2_500_000, 12_345)


def contents(seed: int, sizes: Sequence[int] = SIZES) -> dict[str, bytes]:
    """Chunks by their hash."""
    rng = random.Random(seed)  # noqa: S311 - file contents, no secret
    blocks = [rng.randbytes(size) for size in sizes]
    return {hashlib.sha256(block).hexdigest(): block for block in blocks}


class Rclone:
    """A running `rclone serve`, with its address; to be used in a `with`."""

    def __init__(self, *words: str, port: int = 0) -> None:
        self._log: Any = subprocess.Popen(
            [RCLONE, "serve", *words, "--addr", f"127.0.0.1:{port}", "--config", ""],
            stderr=subprocess.PIPE,
            text=True,
        )
        stderr: Any = self._log.stderr
        for line in stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        self.url = f"http://127.0.0.1:{self.port}"

    @classmethod
    def chunks(cls, folder: Path, *flags: str, port: int = 0) -> Rclone:
        """A node's chunk server."""
        return cls("http", str(folder), "--read-only", "--dir-cache-time", "1s", *flags, port=port)

    def log(self) -> str:
        """What it said since it was up, when it has been stopped."""
        text: str = self._log.stderr.read()
        return text

    def pause(self) -> None:
        """Say nothing from now on, as a host does whose network is gone."""
        self._log.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Be as before."""
        self._log.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._log.kill()
        self._log.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.stderr.close()


@dataclass
class Bench:
    """Chunks, a folder to get them into, a backend that has them in packs, and other nodes.

    Attributes:
        folder: the node's chunks.
        chunks: all of the data set.
        orders: for each chunk, the sources to ask; without one, only the backend.
    """

    place: Path
    chunks: Mapping[str, bytes] = field(default_factory=lambda: contents(1))
    neighbours: dict[str, str] = field(default_factory=dict)
    orders: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.place / "chunks"
        self.folder.mkdir()
        self.backend = self.place / "backend"
        (self.backend / PACK_FOLDER).mkdir(parents=True)
        self.config = self.place / "storage.conf"
        self.config.write_text("[fleet]\ntype = local\n")
        self.remote = RcloneRemote(f"fleet:{self.backend}", str(self.config))
        for pack in self.packs:
            self.pack_path(pack).write_bytes(b"".join(self.chunks[sha256] for sha256, _ in pack.chunks))

    @property
    def packs(self) -> tuple[Pack, ...]:
        return packs_of([(sha256, len(content)) for sha256, content in self.chunks.items()])

    def pack_path(self, pack: Pack) -> Path:
        return self.backend / PACK_FOLDER / pack.name

    def node(self, name: str, *without: str) -> Path:
        """Another node's folder, with all chunks but those."""
        folder = self.place / name
        folder.mkdir()
        for sha256, content in self.chunks.items():
            if sha256 not in without:
                (folder / sha256).write_bytes(content)
        return folder

    def ask_all(self, *order: str) -> None:
        self.orders = {sha256: list(order) for sha256 in self.chunks}

    def request(self, **changes: Any) -> dict[str, Any]:
        places = places_of(self.packs)
        return {
            "folder": str(self.folder),
            "mode": "0640",
            "reserve_bytes": 0,
            "parallel": 4,
            "neighbours": self.neighbours,
            "rclone": RCLONE,
            "remote": {"path": self.remote.path, "config": self.remote.config, "flags": []},
            "chunks": [
                {
                    "sha256": sha256,
                    "size": len(content),
                    "from": self.orders.get(sha256, ["remote"]),
                    "pack": list(places[sha256]),
                }
                for sha256, content in self.chunks.items()
            ],
            **changes,
        }

    def start(self, **changes: Any) -> subprocess.Popen[str]:
        """Start a pull; its standard input has been written."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tailtrain.data.pull"],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin
        process.stdin.write(json.dumps(self.request(**changes)) + "\n")
        process.stdin.flush()
        return process

    def pull(self, **changes: Any) -> dict[str, Any]:
        """Pull to the end; the answer, with the exit code and the largest memory in MB."""
        with self.start(**changes) as process:
            stdout, stderr = process.communicate(timeout=120)
        assert stderr == ""
        answer: dict[str, Any] = json.loads(stdout)
        assert process.returncode == (0 if answer["ok"] else 1)
        return answer

    def names(self) -> set[str]:
        """Everything in the folder, without the record of what was verified."""
        return {path.name for path in self.folder.iterdir()} - {RECORD}

    def there(self) -> set[str]:
        """The chunks that are there; each is whole, whatever happened."""
        found = {name for name in self.names() if not name.startswith(".")}
        for name in found:
            assert (self.folder / name).read_bytes() == self.chunks[name]
        return found


def rclones_of(pid: int) -> list[int]:
    """The rclone processes that a puller started, through their keepers."""
    return [child for child, above in _ancestors().items() if pid in above and alive(child)]


def alive(pid: int) -> bool:
    """Whether this is an rclone that reads a backend."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2] == [RCLONE.encode(), b"rcd"]
    except OSError:
        return False


def wait_until(condition: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _ancestors() -> dict[int, set[int]]:
    parent = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - names are what is needed
        with contextlib.suppress(OSError):
            parent[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    found = {}
    for pid in parent:
        above, at = set(), pid
        while at in parent and at not in above:
            above.add(at)
            at = parent[at]
        found[pid] = above
    return found
