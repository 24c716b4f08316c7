"""HTTP under the Drive stand-in: a proxy that answers CONNECT itself, in TLS, and bodies piece by piece."""

from __future__ import annotations

import json
import socket
import sys
import traceback
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from typing import BinaryIO

HOSTS = ("www.googleapis.com", "oauth2.googleapis.com", "accounts.google.com")
"""The names that lead to the stand-in; others are refused, so nothing leaves this machine."""

_BLOCK = 1 << 18


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext) -> None:
        super().__init__((address, 0), handler)
        self.context = context

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # the library's
        """Say what is a mistake of the stand-in's own: clients that go away are none."""
        if not isinstance(sys.exc_info()[1], OSError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """One connection.

    Attributes:
        body: what is not read yet of the request's body.
    """

    protocol_version = "HTTP/1.1"
    timeout = 120
    disable_nagle_algorithm = True
    server: Server
    body: Iterator[bytes]

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # the library's name
        """Say nothing."""

    def do_CONNECT(self) -> None:
        """Be the server that is asked for."""
        if self.path.rpartition(":")[0] not in HOSTS:
            self.send_error(403, "not a name of this stand-in")
            return
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb", -1), self.connection.makefile("wb", 0)
        self.close_connection = False

    def finish(self) -> None:
        """End the connection, also its TLS."""
        with suppress(OSError):
            super().finish()
            self.connection.close()

    def answer(self) -> None:
        """Answer a request."""

    def _next(self) -> None:
        self.body = self._read_body()
        self.answer()

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = do_DELETE = _next  # noqa: N815  # the library's names

    def hang_up(self) -> None:
        """End the connection without another byte."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _read_body(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield from self._pieces(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            yield from self._pieces(int(self.headers.get("Content-Length") or 0))

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.rfile.read(min(size, _BLOCK))
            if not piece:
                raise ConnectionResetError
            size -= len(piece)
            yield piece

    def send_json(self, value: Any, status: int = 200, **headers: str) -> None:
        """Answer with JSON."""
        content = json.dumps(value).encode()
        self._begin(status, len(content), {"Content-Type": "application/json; charset=UTF-8", **headers})
        self.wfile.write(content)

    def send_nothing(self, status: int, **headers: str) -> None:
        """Answer without a body."""
        self._begin(status, 0, headers)

    def send_range(self, file: BinaryIO, first: int, size: int, status: int, headers: dict[str, str]) -> int:
        """Answer with a part of a file, and give how many bytes were taken of it."""
        self._begin(status, size, headers)
        file.seek(first)
        sent = 0
        while sent < size and (piece := file.read(min(size - sent, _BLOCK))):
            self.wfile.write(piece)
            sent += len(piece)
        return sent

    def _begin(self, status: int, size: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(size), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
