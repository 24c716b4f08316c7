"""Google Drive for tests: a process that answers rclone's real drive backend, here and on other machines.

    with closing(DriveStandIn(folder)) as drive:
        settings = StorageSettings("fleet:folder", **drive.settings())
        environ = variables("fleet", drive.options())
        remote = find_remote(backend, settings, project=..., environ=environ)

It has one person with a Drive of 15 GB, and a service account that may write to a shared drive. What rclone
asks of Google's names reaches it through the proxy that it is as well, with certificates of its own
authority; nothing is forwarded. `control` changes how it behaves: see `drive_control.Control`.

What it does is judged from rclone's requests and source and from Google's documentation; it was not compared
with real Drive.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.standins.certificates import AUTHORITY
from tests.standins.drive_behaviour import CLIENT_ID, CLIENT_SECRET, REFRESH_TOKEN, make_account
from tests.standins.drive_control import CONTROL
from tests.standins.drive_store import SHARED_DRIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CHECKOUT = Path(__file__).resolve().parents[2]


class DriveStandIn:
    """A stand-in, for as long as it is not closed.

    Args:
        folder: for its certificates, sockets and contents; empty, and with a short path.
        address: where it listens. On another than loopback, other machines use it too.
        wrap: makes of a command one that runs elsewhere on this machine, as `Lab.control_command` does.
    """

    def __init__(
        self,
        folder: Path,
        address: str = "127.0.0.1",
        wrap: Callable[[Sequence[str]], Sequence[str]] = tuple,
    ) -> None:
        self._folder = folder
        command = wrap([sys.executable, "-m", "tests.standins.drive_server", str(folder), address])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_CHECKOUT
        )
        assert self._process.stdout
        self.proxy = f"http://{address}:{int(self._process.stdout.readline())}"

    def settings(self) -> dict[str, str]:
        """The settings of group data with which it is reached."""
        return {"http_proxy": self.proxy, "ca_certificate": str(self._folder / AUTHORITY)}

    def options(self) -> dict[str, str]:
        """Options of a remote of rclone: the person's login."""
        token = {
            "access_token": "expired",
            "token_type": "Bearer",
            "refresh_token": REFRESH_TOKEN,
            "expiry": "2000-01-01T00:00:00Z",
        }
        return {
            "type": "drive",
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "scope": "drive",
            "token": json.dumps(token),
            # Real Drive wants pauses between calls; tests do not.
            "pacer_min_sleep": "1ms",
            "pacer_burst": "1000",
        }

    def account_options(self) -> dict[str, str]:
        """Options of a remote of rclone: the service account, on the shared drive."""
        return {
            "type": "drive",
            "scope": "drive",
            "team_drive": SHARED_DRIVE,
            "service_account_credentials": json.dumps(make_account(self._folder)),
            "pacer_min_sleep": "1ms",
            "pacer_burst": "1000",
        }

    def control(self, name: str, **arguments: Any) -> Any:
        """Call a method of `drive_control.Control`."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._folder / CONTROL))
            connection.sendall(json.dumps([name, arguments]).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        self._process.stdin.close()
        with self._process:
            self._process.kill()
