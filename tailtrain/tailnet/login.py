"""Logging in over SSH: `none` first, host keys as the tailnet names them, the server's banner shown.

Tailscale SSH knows who is calling from the tailnet itself and accepts the authentication `none` (RFC 4252,
section 5.2), which paramiko's client never tries. A host with a plain sshd answers that `none` is not enough,
and then everything follows as in pyinfra: ssh_config, agent, keys, password, known_hosts.
"""

from __future__ import annotations

import os
import re
import time
from base64 import b64decode
from binascii import Error as Base64Error
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from paramiko import BadAuthenticationType, PKey, SSHException
from pyinfra.connectors.sshuserclient.client import SSHClient, StrictPolicy, get_ssh_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from socket import socket

    from paramiko import HostKeys, Transport

_ADDRESS_TO_OPEN = re.compile(r"https?://\S+")
_POLL_SECONDS = 0.1


class LoginClient(SSHClient):
    """pyinfra's SSH client for one peer of the tailnet.

    Args:
        dial: opens the connection, given the port.
        host_keys: the only acceptable host keys, as in known_hosts without the name. Where there are some,
            tailscaled answers: only `none` is offered, and of ssh_config only `User` counts.
        login_timeout: how long the server may take to answer a login, in seconds.
        check_timeout: how long a person may take to open the address that the server asks for, in seconds.
        tell: shows the server's message to the person in front of the terminal.
    """

    def __init__(
        self,
        dial: Callable[[int], socket],
        *,
        host_keys: Sequence[str],
        login_timeout: float,
        check_timeout: float,
        tell: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._dial = dial
        self._pinned = bool(host_keys)
        # Asked for before the user's known_hosts; paramiko offers no other way in than a file.
        self._system_host_keys: HostKeys
        pins = (key for key in map(_parse_host_key, host_keys) if key is not None)
        # The first one is what the server is asked to show; Ed25519 costs it least.
        self._pins = sorted(pins, key=lambda key: key.get_name() != "ssh-ed25519")
        self._login_timeout = login_timeout
        self._check_timeout = check_timeout
        self._tell = tell
        self.banner = ""
        """What the server said last while logging in."""
        self.accepts: tuple[str, ...] = ()
        """The ways to log in that the server named instead of `none`."""
        self.gave_up = False
        """The server did not decide about the login in time."""
        self.waited_for_check = False
        """The server asked for a web page to be opened, and nobody did in time."""

    def parse_config(
        self,
        hostname: str,
        initial_cfg: dict[str, Any] | None = None,
        ssh_config_file: str | None = None,
        strict_host_key_checking: str | None = None,
    ) -> tuple[Any, ...]:
        """Decide how to connect, and do it; called by pyinfra's `connect`.

        Raises:
            OSError: no connection.
        """
        if self._pinned:
            config = {"port": 22, **(initial_cfg or {})}
            ssh_config = get_ssh_config(ssh_config_file)
            if ssh_config and "username" not in config and "user" in (entry := ssh_config.lookup(hostname)):
                config["username"] = entry["user"]
            for pin in self._pins:
                self._system_host_keys.add(known_hosts_name(hostname, config["port"]), pin.get_name(), pin)
            parsed = (hostname, config, False, StrictPolicy(), (os.devnull,), 0, None)
        else:
            parsed = super().parse_config(  # type: ignore[no-untyped-call]  # pyinfra's
                hostname, initial_cfg, ssh_config_file, strict_host_key_checking
            )
            config = parsed[1]
            _make_known_hosts(parsed[4])
        if "sock" not in config:
            config["sock"] = self._dial(config["port"])
        # known_hosts is looked up by the name in the inventory, as `ssh NAME` does.
        return (hostname, *parsed[1:])

    def _auth(self, username: str, *credentials: Any) -> None:
        transport = self.get_transport()
        if transport is None:
            message = "no transport"
            raise SSHException(message)
        try:
            with self._showing_banner(transport):
                transport.auth_none(username)
        except BadAuthenticationType as error:
            self.accepts = tuple(error.allowed_types)
            if self._pinned:
                raise
            super()._auth(username, *credentials)  # type: ignore[misc]  # not in the stubs

    @contextmanager
    def _showing_banner(self, transport: Transport) -> Iterator[None]:
        """Show at once what the server says, and wait longer if it asks for a web page to be opened.

        paramiko only gives the banner to who asks, and only while it waits itself with one fixed time-out.
        """
        transport.auth_timeout = self._check_timeout + self._login_timeout
        watcher = gevent.spawn(self._watch, transport)
        try:
            yield
        finally:
            watcher.kill()
            self._read_banner(transport)
            transport.auth_timeout = self._login_timeout

    def _watch(self, transport: Transport) -> None:
        deadline = time.monotonic() + self._login_timeout
        told = ""
        while time.monotonic() < deadline:
            gevent.sleep(_POLL_SECONDS)
            self._read_banner(transport)
            if self.banner != told and _ADDRESS_TO_OPEN.search(self.banner):
                told = self.banner
                deadline = time.monotonic() + self._check_timeout
                self._tell(self.banner)
        self.gave_up = True
        self.waited_for_check = bool(told)
        transport.close()

    def _read_banner(self, transport: Transport) -> None:
        # get_banner() gives nothing once the server closed the connection, which is when a denial is read.
        raw = getattr(transport.auth_handler, "banner", None)
        if raw:
            self.banner = _plain(raw)


def _make_known_hosts(files: Sequence[str]) -> None:
    """Make the file for new host keys, and its folder, as OpenSSH does; pyinfra fails without."""
    if files:
        known_hosts = Path(files[0])
        known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known_hosts.touch(mode=0o600)


def _plain(raw: bytes | str) -> str:
    """A server's banner as one line that cannot play tricks with a terminal."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    lines = (line.strip().removeprefix("#").strip() for line in text.splitlines())
    return "".join(
        character for character in " ".join(line for line in lines if line) if character.isprintable()
    )


def _parse_host_key(line: str) -> PKey | None:
    """A host key in known_hosts form, None if it is of a kind that paramiko does not know."""
    try:
        kind, encoded = line.split()[:2]
        return PKey.from_type_string(kind, b64decode(encoded))
    except (ValueError, Base64Error, SSHException):
        return None


def known_hosts_name(hostname: str, port: int) -> str:
    """How OpenSSH writes a server in known_hosts."""
    return hostname if port == 22 else f"[{hostname}]:{port}"  # noqa: PLR2004  # the well-known port of SSH
