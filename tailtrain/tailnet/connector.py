"""The `@tailscale` connector: pyinfra over Tailscale SSH.

    hosts = ["@tailscale/qfox", ("@tailscale/architect", {"ssh_user": "deploy", "_sudo": True})]

A host is known to pyinfra by its plain name. `@tailscale` alone stands for all machines of the tailnet, with
their tags as groups. Names are looked up when connecting, in the local daemon's netmap. Hosts with a plain
sshd work as with pyinfra's own connector, and the machine that runs pyinfra is used without SSH.
"""

from __future__ import annotations

import getpass
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pyinfra import logger
from pyinfra.api.exceptions import ConnectError, InventoryError
from pyinfra.connectors.base import DataMeta
from pyinfra.connectors.scp.client import SCPClient
from pyinfra.connectors.ssh import ConnectorData, SSHConnector, connector_data_meta
from pyinfra.connectors.sshuserclient.client import get_ssh_config
from pyinfra.connectors.util import clear_askpass_cache, remove_any_sudo_askpass_file

from tailtrain.errors import TailtrainError
from tailtrain.tailnet import connectors, explain, session
from tailtrain.tailnet.commands import run_command
from tailtrain.tailnet.daemon import current_netmap
from tailtrain.tailnet.execution import RemoteCommand, start
from tailtrain.tailnet.own_machine import OwnMachine
from tailtrain.tailnet.prompt import said_once, settle_prompt
from tailtrain.tailnet.session import Session, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyinfra.api.command import StringCommand
    from pyinfra.api.host import Host
    from pyinfra.api.state import State
    from pyinfra.connectors.util import CommandOutput


# Here, since pyinfra imports this module when it looks for connectors, before it looks again for every host.
connectors.remember()

_NEVER_HOSTS = frozenset({"iOS", "android", "tvOS"})


class TailscaleData(ConnectorData):
    """pyinfra's SSH data and ours."""

    tailscale_command_timeout: float
    tailscale_check_timeout: float
    tailscale_silence: float


class TailscaleConnector(SSHConnector):
    """Connect to hosts by their name in the tailnet."""

    data_cls = TailscaleData  # type: ignore[assignment]  # pyinfra means any TypedDict
    data_meta = {  # noqa: RUF012  # pyinfra's own declaration
        **connector_data_meta,
        "ssh_connect_retries": DataMeta("Further tries after a connection was refused or cut", 2),
        "ssh_connect_retry_min_delay": DataMeta("Lower bound for random delay between retries", 0.2),
        "ssh_connect_retry_max_delay": DataMeta("Upper bound for random delay between retries", 1.0),
        "tailscale_command_timeout": DataMeta("Seconds a command may take if it sets no _timeout (no limit)"),
        "tailscale_check_timeout": DataMeta("Seconds to wait for a person where the policy says check", 300),
        "tailscale_silence": DataMeta("Seconds of silence after which a connection counts as lost", 30),
    }
    data: TailscaleData

    def __init__(self, state: State, host: Host) -> None:
        super().__init__(state, host)
        self._own: OwnMachine | None = None
        self._session = Session(
            Settings(
                host=host.name,
                tailnet_name=self.data["ssh_hostname"] or host.name,
                port=int(
                    self.data["ssh_port"] or self._ssh_config().get("port") or session.TAILSCALE_SSH_PORT
                ),
                user=str(self.data["ssh_user"] or self._ssh_config().get("user") or _own_user()),
                connect_timeout=state.config.CONNECT_TIMEOUT,
                check_timeout=self.data["tailscale_check_timeout"],
                silence=self.data["tailscale_silence"],
                retries=self.data["ssh_connect_retries"],
                retry_delay=(
                    self.data["ssh_connect_retry_min_delay"],
                    self.data["ssh_connect_retry_max_delay"],
                ),
            ),
            tailscale_options=self._tailscale_options(),
            plain_options=self._plain_options,
            tell=self._tell,
            reconnected=lambda: clear_askpass_cache(host),
        )

    @staticmethod
    def make_names_data(name: str | None = None) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """Give the host of that name under its plain name, or all machines of the tailnet.

        Raises:
            InventoryError: all machines are asked for and the local daemon cannot say.
        """
        if name:
            plain = name.rstrip(".")
            yield plain, {"ssh_hostname": plain}, []
            return
        try:
            peers = current_netmap().peers
        except TailtrainError as error:
            raise InventoryError(str(error)) from error
        names = [peer.name for peer in peers]
        for peer in peers:
            if peer.os not in _NEVER_HOSTS and peer.addresses:
                unique = peer.name if names.count(peer.name) == 1 else peer.dns_name or peer.address
                groups = ["@tailscale", *(tag.replace("-", "_") for tag in peer.tags)]
                yield unique, {"ssh_hostname": peer.dns_name or peer.name}, groups

    def connect(self) -> None:
        """Look the host up and log in.

        Raises:
            ConnectError: with the text of the TailtrainError that says what to do.
        """
        try:
            peer = self._session.open(current_netmap())
        except TailtrainError as error:
            self.host.connector_data["unreachable"] = str(error)
            settle_prompt(self.state)
            # pyinfra's prefix names the host already.
            said = said_once(self.state, error)
            raise ConnectError(said.removeprefix(f"{self.host.name}: ")) from error
        self._own = OwnMachine(self.state, self.host) if peer.is_self else None

    def disconnect(self) -> None:
        """Close the connection."""
        # pyinfra would remove its sudo helper after this, with no connection left to do it with.
        if self._own is not None or self._session.alive:
            remove_any_sudo_askpass_file(self.host)
        clear_askpass_cache(self.host)
        self._session.close()
        self._own = None

    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,  # noqa: FBT001, FBT002  # pyinfra's signature
        print_input: bool = False,  # noqa: FBT001, FBT002  # pyinfra's signature
        **arguments: Any,
    ) -> tuple[bool, CommandOutput]:
        """Run a command; see `BinaryStdin` for raw bytes as `_stdin`.

        Raises:
            TimeoutError: the command took longer than `_timeout`, else `tailscale_command_timeout`. What it
                started may go on on the host; where that matters, let the command be `timeout 60 ...`.
            OSError: the connection was lost, or could not be made again after it was lost between commands.
        """
        if arguments.get("_timeout") is None:
            arguments["_timeout"] = self.data["tailscale_command_timeout"]
        if self._own is not None:
            return self._own.run_shell_command(command, print_output, print_input, **arguments)
        # Before the command line is made: what pyinfra put on the host for sudo may be gone after a reboot.
        self._session.transport()
        return run_command(
            self.state,
            self.host,
            command,
            self._start,
            print_output=print_output,
            print_input=print_input,
            arguments=arguments,
        )

    def get_file_transfer_connection(self) -> Any:
        """The SFTP client of this connection, or an SCP client if the host's data asks for that."""
        protocol = self.data["ssh_file_transfer_protocol"]
        if protocol == "scp":
            return SCPClient(self._session.transport())
        if protocol == "sftp":
            return self._session.sftp()
        message = f"Unsupported file transfer protocol: {protocol}"
        raise ConnectError(message)

    def put_file(self, filename_or_io: Any, remote_filename: str, *args: Any, **arguments: Any) -> bool:
        """As in pyinfra."""
        if self._own is not None:
            return bool(self._own.put_file(filename_or_io, remote_filename, *args, **arguments))
        with self._losses_reported():
            return super().put_file(filename_or_io, remote_filename, *args, **arguments)

    def get_file(self, remote_filename: str, filename_or_io: Any, *args: Any, **arguments: Any) -> bool:
        """As in pyinfra."""
        if self._own is not None:
            return bool(self._own.get_file(remote_filename, filename_or_io, *args, **arguments))
        with self._losses_reported():
            return super().get_file(remote_filename, filename_or_io, *args, **arguments)

    def check_can_rsync(self) -> None:
        """As in pyinfra."""
        if self._own is not None:
            self._own.check_can_rsync()
        else:
            super().check_can_rsync()

    def rsync(self, src: str, dest: str, flags: Iterable[str], *args: Any, **arguments: Any) -> bool:
        """Run rsync over OpenSSH, to the address and with the host keys that the netmap gives."""
        if self._own is not None:
            return bool(self._own.rsync(src, dest, flags, *args, **arguments))
        before = dict(self.data)
        with TemporaryDirectory() as folder:
            known_hosts = Path(folder) / "known_hosts"
            known_hosts.write_text(self._session.known_hosts())
            address, self.data["ssh_port"] = self._session.endpoint
            self.data["ssh_hostname"] = f"[{address}]" if ":" in address else address
            self.data["ssh_known_hosts_file"] = str(known_hosts)
            self.data["ssh_strict_host_key_checking"] = "yes"
            try:
                return bool(super().rsync(src, dest, flags, *args, **arguments))
            finally:
                self.data.update(before)  # type: ignore[typeddict-item]  # its own former content

    def _start(self, command_line: str, get_pty: bool) -> RemoteCommand:  # noqa: FBT001  # run_command's interface
        channel = self._session.channel()
        peer = self._session.peer
        return start(channel, command_line, terminal=get_pty, host=self.host.name, peer=peer)

    @contextmanager
    def _losses_reported(self) -> Iterator[None]:
        """Turn the ends of a connection into errors that pyinfra counts against this host alone."""
        try:
            yield
        except EOFError as error:
            raise explain.lost(self.host.name, self._session.peer, error) from error
        except ConnectError as error:
            raise OSError(str(error)) from error

    def _tailscale_options(self) -> dict[str, Any]:
        """Arguments of pyinfra's SSH client where tailscaled answers: no key is read or offered."""
        options: dict[str, Any] = {
            "port": session.TAILSCALE_SSH_PORT,
            "_pyinfra_ssh_forward_agent": self.data["ssh_forward_agent"],
            "_pyinfra_ssh_config_file": self.data["ssh_config_file"],
            "_pyinfra_ssh_paramiko_connect_kwargs": self.data["ssh_paramiko_connect_kwargs"],
        }
        if self.data["ssh_user"]:
            options["username"] = self.data["ssh_user"]
        return options

    def _plain_options(self) -> dict[str, Any]:
        options = self.make_paramiko_kwargs()
        del options["hostname"]
        return options

    def _ssh_config(self) -> dict[str, Any]:
        config = get_ssh_config(self.data["ssh_config_file"])
        return dict(config.lookup(self.host.name)) if config else {}

    def _tell(self, banner: str) -> None:
        logger.warning("%s%s", self.host.print_prefix, banner)


def _own_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return ""
