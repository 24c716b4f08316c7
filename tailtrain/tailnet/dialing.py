"""The TCP connection and SSH transport to a peer, and how a silent peer is noticed.

paramiko sets none of this: without TCP_NODELAY a short command costs tens of milliseconds more, and without
time-outs a host that vanished is waited for without end.
"""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import gevent
from paramiko import SSHException, Transport

from tailtrain.tailnet.eager import EagerTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG_CHANNEL = "tailtrain.ssh"
"""paramiko logs whole tracebacks of expected failures; they go here, and nowhere unless somebody listens."""
logging.getLogger(LOG_CHANNEL).addHandler(logging.NullHandler())

CHANNEL_TIMEOUT_SECONDS = 30.0
"""How long a live peer may take to open a channel (paramiko's own limit is an hour)."""

FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Encryption and integrity in one pass: 140 MB/s where paramiko's first choice, AES-CTR and HMAC, gave 81."""

_KEEPALIVE_REQUEST = "keepalive@openssh.com"
_TICKS = 20
_WRONG_FAMILY = frozenset({errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


def dial(addresses: Sequence[str], port: int, *, timeout: float, silence: float) -> socket.socket:
    """Open a TCP connection to the first address whose family this machine can reach.

    Args:
        addresses: tailnet addresses, the preferred one first.
        port: TCP port.
        timeout: how long to wait, in seconds.
        silence: after how many seconds without an acknowledgement the connection counts as lost.

    Raises:
        OSError: no connection; TimeoutError if there was no answer at all.
    """
    for position, address in enumerate(addresses, start=1):
        try:
            connection = socket.create_connection((address, port), timeout=timeout)
        except OSError as error:
            if error.errno in _WRONG_FAMILY and position < len(addresses):
                continue
            raise
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence * 1000))
        return connection
    raise OSError(errno.EADDRNOTAVAIL, "the host has no tailnet address")


def make_transport(
    sock: Any, *, timeout: float, login_timeout: float, eager: bool, **options: Any
) -> Transport:
    """An SSH transport with limits on every wait.

    Args:
        sock: an open connection.
        timeout: for the server's identification and for the key exchange, each in seconds.
        login_timeout: for one authentication, in seconds.
        eager: log in with `none` at once; see `tailtrain.tailnet.eager`.
        options: further arguments of paramiko's Transport.
    """
    transport = (EagerTransport if eager else Transport)(sock, **options)
    transport.set_log_channel(LOG_CHANNEL)
    security = transport.get_security_options()
    security.ciphers = sorted(security.ciphers, key=lambda cipher: cipher not in FAST_CIPHERS)
    transport.banner_timeout = timeout
    transport.handshake_timeout = timeout
    transport.auth_timeout = login_timeout
    transport.channel_timeout = CHANNEL_TIMEOUT_SECONDS  # type: ignore[attr-defined]  # not in the stubs
    return transport


class Heartbeat:
    """Closes a transport whose peer stays silent, so that whatever waits for it fails instead of hanging.

    TCP alone does not notice a peer whose kernel acknowledges but whose SSH server is stuck. So a request
    that every SSH server must answer (RFC 4254, section 4) is sent from time to time, as OpenSSH does for
    ServerAliveInterval.

    Args:
        transport: an authenticated transport.
        silence: after how many seconds without an answer the peer counts as lost.
    """

    def __init__(self, transport: Transport, *, silence: float) -> None:
        self._transport = transport
        self._silence = silence
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Stop watching."""
        self._greenlet.kill(block=False)

    def _run(self) -> None:
        while self._transport.is_active():
            gevent.sleep(self._silence / 3)
            request = gevent.spawn(self._ask)
            # Counted in ticks, not by the clock: while this process itself was busy or suspended, nobody read
            # the answers that are waiting.
            for _ in range(_TICKS):
                if request.ready():
                    break
                gevent.sleep(self._silence * 2 / 3 / _TICKS)
            else:
                request.kill(block=False)
                self._transport.close()

    def _ask(self) -> None:
        # A transport that ended meanwhile is noticed by the loop.
        with suppress(SSHException, OSError, EOFError):
            self._transport.global_request(_KEEPALIVE_REQUEST, wait=True)
