"""S3 for tests, twice: rclone's own server and moto, each a process on an address of this machine.

They differ where it matters: rclone keeps files in a folder, which a test can look into and damage, and
checks signatures; moto answers as AWS does where the request or the bucket is wrong.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

ACCESS_KEY = "AKIASTANDINSTANDIN00"
SECRET_KEY = "stand-in/secret+key/of+forty+characters=0"  # noqa: S105  # no secret: both ends are ours


@dataclass
class S3StandIn:
    """A server, for as long as it is not closed.

    Attributes:
        endpoint: its URL.
        process: the server.
        folder: where its buckets are, as folders; None where it keeps them in memory.
    """

    endpoint: str
    process: subprocess.Popen[bytes]
    folder: Path | None = None

    def options(self) -> Mapping[str, str]:
        """Options of a remote of rclone that leads here."""
        return {
            "type": "s3",
            "provider": "Rclone" if self.folder else "Other",
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def start_rclone(
    folder: Path,
    rclone: str,
    address: str = "127.0.0.1",
    wrap: Callable[[Sequence[str]], Sequence[str]] = tuple,
) -> S3StandIn:
    """Serve S3 from a folder, with `rclone serve s3`.

    Args:
        folder: its buckets are folders in it; must exist.
        rclone: the program.
        address: where to listen. On another than loopback, other machines use it too.
        wrap: makes of a command one that runs elsewhere on this machine, as `Lab.control_command` does.
    """
    command = [
        *(rclone, "serve", "s3", str(folder), "--config=", f"--addr={address}:0"),
        *(f"--auth-key={ACCESS_KEY},{SECRET_KEY}", "--vfs-cache-mode=off"),
    ]
    process, endpoint = _start(wrap(command), re.compile(rb"Starting s3 server on \[(http://[^/]+)/?\]"))
    return S3StandIn(endpoint, process, folder)


def start_moto(bucket: str) -> S3StandIn:
    """Serve S3 from memory, with moto's server on loopback, and make one bucket."""
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", "0"]
    process, endpoint = _start(command, re.compile(rb"Running on (http://[^/\s]+)"))
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")  # noqa: S310  # our own server
    with urllib.request.urlopen(request, timeout=10):  # noqa: S310  # as above
        return S3StandIn(endpoint, process)


def _start(command: Sequence[str], ready: re.Pattern[bytes]) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server, and give what it says about where it listens; what it says later is thrown away."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr
    said = b""
    for line in process.stderr:
        said += line
        if found := ready.search(line):
            threading.Thread(target=_throw_away, args=[process.stderr], daemon=True).start()
            return process, found[1].decode()
    process.wait()
    raise AssertionError(said.decode())


def _throw_away(output: IO[bytes]) -> None:
    with output:
        for _ in output:
            pass
