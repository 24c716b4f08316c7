"""One host's SSH session: looked up, logged in, and made again when it was lost between commands."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import uniform
from typing import TYPE_CHECKING, Any

import gevent
from gevent.lock import RLock
from paramiko import AuthenticationException, BadHostKeyException, SFTPClient, SSHException
from pyinfra import logger
from pyinfra.api.exceptions import PyinfraError

from tailtrain.errors import AccessError, TailnetError, TailtrainError, UnknownHostError
from tailtrain.tailnet import explain
from tailtrain.tailnet.daemon import current_netmap
from tailtrain.tailnet.dialing import Heartbeat, dial, make_transport
from tailtrain.tailnet.login import LoginClient, known_hosts_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from paramiko import Channel, Transport

    from tailtrain.tailnet.netmap import Netmap, Peer

TAILSCALE_SSH_PORT = 22
"""The port on which tailscaled itself answers, and the only one to which advertised host keys belong."""

LOGIN_TIMEOUT_SECONDS = 15.0
"""tailscaled may have to ask the coordination server before it answers a login."""


_STALE_SECONDS = 5.0
"""An answer no older than this needs no second look when it does not name the host."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to connect. All times are in seconds."""

    host: str
    """The host's name in messages, ssh_config and known_hosts."""
    tailnet_name: str
    """The name, or address, to look up in the netmap."""
    port: int
    user: str
    connect_timeout: float
    check_timeout: float
    """For a person to open the web page that a check rule asks for."""
    silence: float
    """Without any answer for this long, a connection counts as lost."""
    retries: int
    retry_delay: tuple[float, float]


class Session:
    """The SSH session of one host; shared by the greenlets that run commands on it.

    Args:
        settings: how to connect.
        tailscale_options: arguments for the client where tailscaled answers.
        plain_options: gives the arguments for the client where a plain sshd answers; may read keys from disk.
        tell: shows a message of the server to the person in front of the terminal.
        reconnected: called after connecting again, as temporary files of the host may be gone.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        tailscale_options: dict[str, Any],
        plain_options: Callable[[], dict[str, Any]],
        tell: Callable[[str], None],
        reconnected: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._tailscale_options = tailscale_options
        self._plain_options = plain_options
        self._tell = tell
        self._reconnected = reconnected
        self._client: LoginClient | None = None
        self._sftp: SFTPClient | None = None
        self._heartbeat: Heartbeat | None = None
        self._connecting = RLock()
        self._opened = False
        self.peer: Peer | None = None
        """Whom the name stood for when it was last looked up."""

    @property
    def pinned(self) -> bool:
        """Whether tailscaled answers, so that the netmap's host keys, and no others, are accepted."""
        return (
            self.peer is not None and bool(self.peer.host_keys) and self._settings.port == TAILSCALE_SSH_PORT
        )

    def open(self, netmap: Netmap) -> Peer:
        """Look the host up and log in, trying again after what may pass. This machine itself is not dialled.

        Raises:
            TailtrainError: what went wrong and what to do.
        """
        host, limit = self._settings.host, self._settings.connect_timeout
        retries = self._settings.retries
        fresh = False
        while True:
            netmap, peer = self._look_up(netmap)
            if peer.is_self:
                return peer
            started = time.monotonic()
            try:
                self._log_in(peer)
            except BadHostKeyException as error:
                # The host may have been set up again since this process read the netmap.
                if fresh:
                    raise explain.wrong_host_key(
                        host, self._settings.port, peer, error, pinned=self.pinned
                    ) from error
                netmap, fresh = current_netmap(max_age=0), True
            except (OSError, SSHException, EOFError) as error:
                if isinstance(error, TimeoutError) or time.monotonic() - started >= limit:
                    raise explain.silent(host, self._settings.port, netmap, peer, limit) from error
                if retries <= 0:
                    raise explain.not_connected(host, self._settings.port, netmap, peer, error) from error
                retries -= 1
                gevent.sleep(uniform(*self._settings.retry_delay))  # noqa: S311  # spreads tries, keeps no secret
            else:
                self._opened = True
                return peer

    def transport(self) -> Transport:
        """The transport, connected again if it ended since the last command, as after a reboot.

        Raises:
            OSError: it cannot be connected again, or never was; pyinfra counts this against this host alone.
        """
        with self._connecting:
            if (transport := self._active_transport()) is not None:
                return transport
            if not self._opened:
                message = f"{self._settings.host}: not connected"
                raise OSError(message)
            logger.info("%s: the connection was lost, connecting again", self._settings.host)
            self._drop()
            try:
                self.open(current_netmap(max_age=0))
            except TailtrainError as error:
                raise OSError(str(error)) from error
            self._reconnected()
            return self.transport()

    def channel(self) -> Channel:
        """A channel for one command. Connects again once: without a channel, nothing was run yet.

        Raises:
            OSError: no channel.
        """
        transport = self.transport()
        try:
            return transport.open_session()
        except (EOFError, OSError, SSHException) as error:
            if transport.is_active():
                raise explain.lost(self._settings.host, self.peer, error) from error
        try:
            return self.transport().open_session()
        except (EOFError, SSHException) as error:
            raise explain.lost(self._settings.host, self.peer, error) from error

    def sftp(self) -> SFTPClient | None:
        """The SFTP client of this connection.

        Raises:
            OSError: the connection is lost, or the host offers no SFTP.
        """
        transport = self.transport()
        try:
            self._sftp = self._sftp or SFTPClient.from_transport(transport)
        except (SSHException, EOFError) as error:
            message = f"{self._settings.host}: SFTP cannot be started there ({error or 'channel closed'})"
            raise OSError(message) from error
        return self._sftp

    @property
    def alive(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._active_transport() is not None

    @property
    def endpoint(self) -> tuple[str, int]:
        """The peer's address and port; the address is empty before it was looked up."""
        return self.peer.address if self.peer is not None else "", self._settings.port

    def known_hosts(self) -> str:
        """The host keys that this session accepts, as a known_hosts file for the peer's address.

        Raises:
            OSError: as `transport`.
        """
        shown = self.transport().get_remote_server_key()
        pins = self.peer.host_keys if self.peer is not None and self.pinned else ()
        name = known_hosts_name(*self.endpoint)
        return "".join(f"{name} {key}\n" for key in pins or [f"{shown.get_name()} {shown.get_base64()}"])

    def close(self) -> None:
        """End the session for good."""
        self._opened = False
        self._drop()

    def _active_transport(self) -> Transport | None:
        transport = self._client.get_transport() if self._client is not None else None
        return transport if transport is not None and transport.is_active() else None

    def _look_up(self, netmap: Netmap) -> tuple[Netmap, Peer]:
        """The peer, and the netmap that knows it: a newer one if the host joined since the first was read."""
        try:
            peer = self._find(netmap)
        except (UnknownHostError, AccessError):
            netmap = current_netmap(max_age=_STALE_SECONDS)
            peer = self._find(netmap)
        self.peer = peer
        return netmap, peer

    def _find(self, netmap: Netmap) -> Peer:
        peer = netmap.find(self._settings.tailnet_name)
        if peer.expired:
            raise explain.expired(self._settings.host, peer)
        if not netmap.has_device and not peer.is_self:
            raise explain.no_device(self._settings.host)
        return peer

    def _log_in(self, peer: Peer) -> None:
        """Connect and authenticate once.

        Raises:
            AccessError: the login was refused.
            HostKeyError: strict checking is on and known_hosts does not know the host.
            BadHostKeyException: the host key is another one.
            OSError, SSHException, EOFError: no connection.
        """
        settings = self._settings
        deadline = time.monotonic() + settings.connect_timeout
        client = LoginClient(
            lambda port: dial(
                peer.addresses, port, timeout=settings.connect_timeout, silence=settings.silence
            ),
            host_keys=peer.host_keys if self.pinned else (),
            login_timeout=LOGIN_TIMEOUT_SECONDS,
            check_timeout=settings.check_timeout,
            tell=self._tell,
        )

        def transport_factory(sock: Any, **options: Any) -> Transport:
            remaining = max(1.0, deadline - time.monotonic())
            limits = {"timeout": remaining, "login_timeout": LOGIN_TIMEOUT_SECONDS}
            return make_transport(sock, **limits, eager=self.pinned, **options)

        try:
            options = dict(self._tailscale_options) if self.pinned else self._plain_options()
            options["_pyinfra_ssh_paramiko_connect_kwargs"] = {
                "transport_factory": transport_factory,
                # Longer than the transport's own limits, whose errors say what was waited for.
                "timeout": settings.connect_timeout + 1,
                **(options.get("_pyinfra_ssh_paramiko_connect_kwargs") or {}),
            }
            logger.debug("Connecting to %s at %s", settings.host, peer.address)
            client.connect(settings.host, **options)  # type: ignore[no-untyped-call]  # pyinfra's
        except BaseException as error:
            client.close()
            self._raise_refusal(client, error)
            raise
        self._client = client
        if (transport := client.get_transport()) is not None:
            self._heartbeat = Heartbeat(transport, silence=settings.silence)

    def _raise_refusal(self, client: LoginClient, error: BaseException) -> None:
        """Raise our error if the login was refused or cannot be tried; other errors may pass."""
        settings = self._settings
        if client.waited_for_check:
            raise explain.check_not_done(settings.host, client.banner, settings.check_timeout) from error
        if client.gave_up:
            raise explain.no_login_answer(settings.host, client.banner, LOGIN_TIMEOUT_SECONDS) from error
        if isinstance(error, BadHostKeyException):
            return
        if isinstance(error, SSHException):
            # paramiko and pyinfra have no classes of their own for these two.
            if isinstance(error, AuthenticationException) or "No authentication methods" in str(error):
                raise explain.denied(
                    settings.host,
                    settings.user,
                    error,
                    banner=client.banner,
                    accepts=client.accepts,
                    pinned=self.pinned,
                ) from error
            if "StrictPolicy" in str(error):
                raise explain.unknown_host_key(settings.host, error) from error
        if isinstance(error, PyinfraError):
            raise TailnetError(str(error), host=settings.host) from error

    def _drop(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        self._sftp = None
        if self._client is not None:
            self._client.close()
            self._client = None
