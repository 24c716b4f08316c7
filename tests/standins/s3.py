"""S3 for tests, twice: rclone's own server and moto, each a process on an address of this machine.

They differ where it matters: rclone keeps files in a folder, which a test can look into and damage, and
checks signatures; moto answers as AWS does where the request or the bucket is wrong.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ACCESS_KEY = "AKIASTANDINSTANDIN00"
SECRET_KEY = "stand-in/secret+key/of+forty+characters=0"  # noqa: S105  # no secret: both ends are ours

_START_SECONDS = 30


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
        with self.process:
            self.process.kill()


def start_rclone(folder: Path, rclone: str, address: str = "127.0.0.1") -> S3StandIn:
    """Serve S3 from a folder, with `rclone serve s3`.

    Args:
        folder: its buckets; made if need be.
        rclone: the program.
        address: where to listen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port(address)
    process = subprocess.Popen(
        [
            *(rclone, "serve", "s3", str(folder), "--config=", f"--addr={address}:{port}"),
            *(f"--auth-key={ACCESS_KEY},{SECRET_KEY}", "--vfs-cache-mode=off"),
        ],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return _ready(S3StandIn(f"http://{address}:{port}", process, folder))


def start_moto(bucket: str, address: str = "127.0.0.1") -> S3StandIn:
    """Serve S3 from memory, with moto's server, and make one bucket.

    Args:
        bucket: its name.
        address: where to listen.
    """
    port = _free_port(address)
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "--host", address, "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    standin = _ready(S3StandIn(f"http://{address}:{port}", process))
    request = urllib.request.Request(f"{standin.endpoint}/{bucket}", method="PUT")  # noqa: S310  # our own server
    with urllib.request.urlopen(request, timeout=10):  # noqa: S310  # as above
        return standin


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as listening:
        return int(listening.getsockname()[1])


def _ready(standin: S3StandIn) -> S3StandIn:
    """Wait until it listens."""
    address, _, port = standin.endpoint.removeprefix("http://").rpartition(":")
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and standin.process.poll() is None:
        try:
            with socket.create_connection((address, int(port)), timeout=1):
                return standin
        except OSError:
            time.sleep(0.05)
    standin.close()
    raise AssertionError(f"{standin.endpoint} does not answer")
