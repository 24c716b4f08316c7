"""HTTP connections to one source, kept alive between requests.

Runs on the nodes: standard library only.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONNECT_SECONDS = 5.0
"""How long a connection may take to be made."""

IDLE_SECONDS = 60.0
"""How long the other side may be silent before it counts as dead."""


class Connections:
    """Connections to one source; threads share them, each request has one of its own.

    Args:
        make: gives a connection object, which connects when it is used.
    """

    def __init__(self, make: Callable[[], http.client.HTTPConnection]) -> None:
        self.closed = False
        self._make = make
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._guard = threading.Lock()

    def get(
        self, path: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Ask for a path; give the answer, and the connection to `release` when the answer was read.

        Raises:
            OSError: no connection, or it broke off.
            HTTPException: what came back is not HTTP.
        """
        while True:
            connection, used = self._acquire()
            try:
                connection.request("GET", path, headers=dict(headers))
                return connection, connection.getresponse()
            except ConnectionError:
                self.release(connection, keep=False)
                # One that was kept may have been closed by the other side in the meantime.
                if not used:
                    raise
            except BaseException:
                self.release(connection, keep=False)
                raise

    def release(self, connection: http.client.HTTPConnection, *, keep: bool) -> None:
        """Take a connection back; `keep` it if its answer was read to the end."""
        with self._guard:
            self._busy.discard(connection)
            if keep and not self.closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """End all of them, also those in use; `get` fails from now on."""
        with self._guard:
            self.closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:
            # The thread that reads from it sees its end, and releases it.
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def _acquire(self) -> tuple[http.client.HTTPConnection, bool]:
        """Give a connection, and whether it was used before."""
        with self._guard:
            if self.closed:
                raise OSError("stopped")
            if self._idle:
                connection = self._idle.pop()
                self._busy.add(connection)
                return connection, True
        connection = self._make()
        with self._guard:
            self._busy.add(connection)
        return connection, False


class PatientConnection(http.client.HTTPConnection):
    """By TCP: quick to notice that nobody is there, patient with who is."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, timeout=CONNECT_SECONDS)

    def connect(self) -> None:
        """Connect."""
        super().connect()
        self.sock.settimeout(IDLE_SECONDS)


class SocketConnection(http.client.HTTPConnection):
    """Through a socket file."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """Connect."""
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(IDLE_SECONDS)
            connected.connect(self._path)
        except BaseException:
            connected.close()
            raise
        self.sock = connected


def spoken(error: Exception) -> str:
    """Say in plain words why there is no answer."""
    if isinstance(error, ConnectionRefusedError):
        return "it refuses connections"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
