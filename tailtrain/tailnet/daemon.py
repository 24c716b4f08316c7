"""Asking the local Tailscale daemon.

The status is read once per process and kept, because pyinfra asks for every host, twice.
"""

from __future__ import annotations

import socket
import subprocess
import time
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

from gevent.lock import RLock

from tailtrain.errors import DaemonError
from tailtrain.tailnet.netmap import Netmap, parse_status

if TYPE_CHECKING:
    from collections.abc import Callable

STATUS_FILE_VARIABLE = "TAILTRAIN_STATUS_JSON"
"""Environment variable: a file with a status document to read instead of asking the daemon."""

SOCKET = "/var/run/tailscale/tailscaled.sock"
"""Where the daemon listens on Linux."""

# HTTP 1.0, so that the answer ends with the connection. The host's name is the daemon's own word for itself
# (LocalAPIHost in the Go package tailscale.com/client/tailscale/apitype).
_STATUS_REQUEST = b"GET /localapi/v0/status HTTP/1.0\r\nHost: local-tailscaled.sock\r\n\r\n"

STATUS_TIMEOUT_SECONDS = 10.0
"""The daemon answers in milliseconds; one that takes this long is stuck."""


def read_status() -> bytes:
    """Ask the local daemon, or read the file that TAILTRAIN_STATUS_JSON names.

    Raises:
        DaemonError: there is no daemon, or it does not answer; the message says what to run.
    """
    if path := environ.get(STATUS_FILE_VARIABLE):
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise DaemonError(
                "the status document cannot be read",
                field=STATUS_FILE_VARIABLE,
                found=str(error),
                fix=f"Correct {STATUS_FILE_VARIABLE}, or unset it to ask the daemon",
            ) from error
    if (status := _ask_directly()) is not None:
        return status
    try:
        answer = subprocess.run(
            ["tailscale", "status", "--json"],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=STATUS_TIMEOUT_SECONDS,
        )
    except FileNotFoundError as error:
        raise DaemonError(
            "Tailscale is not installed on this machine",
            expected="the command tailscale",
            fix="Install it as https://tailscale.com/download says, then run: sudo tailscale up",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise _stuck() from error
    if answer.returncode != 0:
        said = answer.stderr.decode(errors="replace").strip() or f"exit code {answer.returncode}"
        raise DaemonError(
            "the Tailscale daemon is not running",
            found=said.splitlines()[0],
            fix="Run: sudo systemctl enable --now tailscaled, then: tailscale status",
        )
    return answer.stdout


def _ask_directly() -> bytes | None:
    """Ask the daemon as its own command does, without starting that; None where it has to be started.

    The command knows every place that a daemon may be in, and why one does not answer.

    Raises:
        DaemonError: there is a daemon, and it does not answer.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STATUS_TIMEOUT_SECONDS)
            connection.connect(SOCKET)
            connection.sendall(_STATUS_REQUEST)
            with connection.makefile("rb") as reader:
                answer = reader.read()
    except TimeoutError as error:
        raise _stuck() from error
    except OSError:
        return None
    head, _, body = answer.partition(b"\r\n\r\n")
    return body if head.split(b" ")[1:2] == [b"200"] else None


def _stuck() -> DaemonError:
    return DaemonError(
        f"the Tailscale daemon did not answer within {STATUS_TIMEOUT_SECONDS:g} s",
        fix="Run: sudo systemctl restart tailscaled",
    )


class NetmapCache:
    """The netmap of this process, read when first asked for.

    Args:
        source: gives a status document; raises DaemonError if it cannot.
    """

    def __init__(self, source: Callable[[], bytes | str]) -> None:
        self._source = source
        self._netmap: Netmap | None = None
        self._failure: tuple[float, DaemonError] | None = None
        # All hosts connect at the same moment: one of them asks the daemon, the others wait for that answer.
        self._lock = RLock()

    def get(self, *, max_age: float | None = None) -> Netmap:
        """The netmap, not older than `max_age` seconds; None accepts the one that this process read first.

        Raises:
            DaemonError: as `read_status` and `parse_status`.
        """
        asked = time.monotonic()
        with self._lock:
            kept = self._netmap
            if kept is not None and (max_age is None or asked - kept.read_at <= max_age):
                return kept
            # Those who waited here while the daemon did not answer would wait as long again, one by one.
            if self._failure is not None and self._failure[0] >= asked:
                raise self._failure[1]
            read_at = time.monotonic()
            try:
                self._netmap = parse_status(self._source(), read_at=read_at)
            except DaemonError as error:
                self._failure = (time.monotonic(), error)
                raise
            return self._netmap

    def forget(self) -> None:
        """Read again when next asked."""
        with self._lock:
            self._netmap = None


_CACHE = NetmapCache(read_status)


def current_netmap(*, max_age: float | None = None) -> Netmap:
    """This process's netmap; see `NetmapCache.get`."""
    return _CACHE.get(max_age=max_age)


def forget_netmap() -> None:
    """Have the next `current_netmap` ask the daemon again."""
    _CACHE.forget()


def address_of(name: str) -> str:
    """The tailnet address of a machine, IPv4 if it has one.

    Raises:
        DaemonError: the local daemon cannot say.
        UnknownHostError: there is no machine, or more than one, of that name.
    """
    return current_netmap().find(name).address


def path_of(name: str, *, max_age: float = 5.0) -> str:
    """How a machine is reached now: `direct 192.0.2.7:41641`, `relayed via fra`, `local` or `unknown`.

    A path is found by traffic, so ask after connecting; `unknown` means that there was none lately.

    Args:
        name: as for `Netmap.find`.
        max_age: how old the answer may be, in seconds.

    Raises:
        DaemonError: the local daemon cannot say.
        UnknownHostError: there is no machine, or more than one, of that name.
    """
    return current_netmap(max_age=max_age).find(name).path
