"""SSH servers on loopback that behave as tailscaled's or a plain sshd, and a status document naming them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko
from paramiko import ECDSAKey, ServerInterface, SFTPServer, SFTPServerInterface, Transport
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from pyinfra.api import Config, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import BaseStateCallback


@dataclass
class Behaviour:
    """How a server treats who connects."""

    accept_none: bool = True
    accepted_key: paramiko.PKey | None = None
    banner: str = ""
    banner_hold_seconds: float = 0.0
    deny: bool = False
    """Close the connection instead of answering the login, as tailscaled does after its denial."""
    refuse_commands: bool = False
    """As a server that offers nothing but SFTP."""
    users: list[str] = field(default_factory=list)
    """Who tried to log in, and how, in order."""


class _Server(ServerInterface):
    def __init__(self, behaviour: Behaviour, transport: Transport) -> None:
        self._behaviour = behaviour
        self._transport = transport
        self.frozen = threading.Event()

    def get_banner(self) -> tuple[Any, Any]:
        return (self._behaviour.banner, "en-US") if self._behaviour.banner else (None, None)

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "publickey"

    def check_auth_none(self, username: str) -> int:
        self._behaviour.users.append(f"{username} none")
        if self._behaviour.banner_hold_seconds:
            time.sleep(self._behaviour.banner_hold_seconds)
        if self._behaviour.deny:
            self._transport.close()
        return AUTH_SUCCESSFUL if self._behaviour.accept_none else AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._behaviour.users.append(f"{username} publickey")
        return AUTH_SUCCESSFUL if key == self._behaviour.accepted_key else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        del kind, chanid
        return OPEN_SUCCEEDED

    def check_global_request(self, kind: str, msg: Any) -> bool:
        del kind, msg
        while self.frozen.is_set():
            time.sleep(0.05)
        return False

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self._behaviour.refuse_commands:
            return False
        threading.Thread(target=_run, args=(channel, command.decode()), daemon=True).start()
        return True


def _run(channel: paramiko.Channel, command: str) -> None:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr

    def feed() -> None:
        assert process.stdin
        try:
            while data := channel.recv(1 << 15):
                process.stdin.write(data)
                process.stdin.flush()
            process.stdin.close()
        except OSError:
            pass

    def copy(source: Any, send: Any) -> None:
        try:
            while data := source.read1(1 << 15):
                send(data)
        except OSError:
            pass

    threading.Thread(target=feed, daemon=True).start()
    readers = [
        threading.Thread(target=copy, args=(process.stdout, channel.sendall), daemon=True),
        threading.Thread(target=copy, args=(process.stderr, channel.sendall_stderr), daemon=True),
    ]
    for reader in readers:
        reader.start()
    code = process.wait()
    for reader in readers:
        reader.join()
    try:
        channel.send_exit_status(code)
        channel.close()
    except (OSError, EOFError):
        pass


class _Files(SFTPServerInterface):
    def open(self, path: str, flags: int, attr: Any) -> Any:
        del attr
        handle = paramiko.SFTPHandle(flags)
        mode = "wb" if flags & os.O_WRONLY else "rb"
        opened = Path(path).open(mode)  # noqa: SIM115  # closed by the handle
        handle.readfile = handle.writefile = opened  # type: ignore[attr-defined]
        return handle

    def stat(self, path: str) -> Any:
        return paramiko.SFTPAttributes.from_stat(Path(path).stat())


class SSHServer:
    """One server on one loopback address."""

    def __init__(self, address: str, port: int, behaviour: Behaviour, key: paramiko.PKey) -> None:
        self.address = address
        self.behaviour = behaviour
        self.key = key
        self._port = port
        self._connections: list[tuple[Transport, _Server]] = []
        self._listener: socket.socket | None = None
        self.start()

    def start(self) -> None:
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._listener = socket.create_server((self.address, self._port), family=family, backlog=64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            transport = Transport(connection)
            transport.set_log_channel("tests.server")
            transport.add_server_key(self.key)
            transport.set_subsystem_handler("sftp", SFTPServer, _Files)
            server = _Server(self.behaviour, transport)
            self._connections.append((transport, server))
            try:
                transport.start_server(event=threading.Event(), server=server)
            except (EOFError, OSError, paramiko.SSHException):
                continue

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def is_anybody_connected(self) -> bool:
        return any(transport.is_active() for transport, _ in self._connections)

    def cut(self) -> None:
        """Drop all connections at once, as a crashed host does once it is back."""
        for transport, _ in self._connections:
            transport.close()

    def freeze(self) -> None:
        """Answer nothing any more while the kernel still acknowledges."""
        for _, server in self._connections:
            server.frozen.set()

    def stop(self) -> None:
        for _, server in self._connections:
            server.frozen.clear()
        if self._listener is not None:
            self._listener.close()
        self.cut()


class Tailnet:
    """Servers by name, and their status document."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.status_file = folder / "status.json"
        self.servers: dict[str, SSHServer] = {}
        self._peers: dict[str, dict[str, Any]] = {}
        self._listeners: list[socket.socket] = []
        self.write()

    def add(
        self,
        name: str,
        *,
        pinned: bool = True,
        behaviour: Behaviour | None = None,
        address: str | None = None,
        **fields: Any,
    ) -> SSHServer:
        """A host with a server; `pinned` means that it runs Tailscale SSH."""
        key = ECDSAKey.generate()
        address = address or self._next_address()
        server = SSHServer(address, self.port, behaviour or Behaviour(), key)
        self.servers[name] = server
        keys = {"sshHostKeys": [f"{key.get_name()} {key.get_base64()}"]} if pinned else {}
        self.add_peer(name, address=address, **keys, **fields)
        return server

    def add_peer(self, name: str, *, address: str | None = None, **fields: Any) -> str:
        """A host without a server."""
        address = address or self._next_address()
        self._peers[name] = {
            "HostName": name,
            "DNSName": f"{name}.tail1234.ts.net.",
            "OS": "linux",
            "TailscaleIPs": [address],
            "Online": True,
            **fields,
        }
        self.write()
        return address

    def add_mute(self, name: str, **fields: Any) -> None:
        """A host that accepts connections and says nothing."""
        address = self.add_peer(name, **fields)
        self._listeners.append(socket.create_server((address, self.port)))

    def write(self, **fields: Any) -> None:
        status = {
            "Version": "1.102.5",
            "TUN": True,
            "BackendState": "Running",
            "Self": {
                "HostName": "control",
                "DNSName": "control.tail1234.ts.net.",
                "OS": "linux",
                "TailscaleIPs": ["127.0.0.1"],
                "Online": True,
            },
            "Peer": {f"nodekey:{name}": peer for name, peer in self._peers.items()},
            **fields,
        }
        self.status_file.write_text(json.dumps(status))

    def close(self) -> None:
        for server in self.servers.values():
            server.stop()
        for listener in self._listeners:
            listener.close()

    def _next_address(self) -> str:
        return f"127.0.77.{len(self._peers) + 2}"

    def deploy(self, *names: str | tuple[str, dict[str, Any]], timeout: float = 5, **data: Any) -> Deployment:
        """Connect pyinfra to hosts, given as in an inventory."""
        return Deployment(
            list(names), {"ssh_port": self.port, "ssh_connect_retry_max_delay": 0.3, **data}, timeout
        )


class Deployment(BaseStateCallback):
    """pyinfra's state after connecting, and what it was told on the way."""

    def __init__(self, names: list[Any], data: dict[str, Any], timeout: float) -> None:
        inventory = Inventory((names, data))
        self.errors: dict[str, str] = {}
        self.state = State(inventory, Config(CONNECT_TIMEOUT=timeout, PARALLEL=64), check_for_changes=False)
        outer = self

        class Listener(BaseStateCallback):
            @staticmethod
            def host_connect_error(state: State, host: Any, error: Exception) -> None:
                del state
                outer.errors[host.name] = str(error)

        self.state.add_callback_handler(Listener())
        started = time.monotonic()
        try:
            connect_all(self.state)
        except PyinfraError as error:
            assert str(error) == "No hosts remaining!"  # noqa: PT017  # the only host may be meant to fail
        self.seconds = time.monotonic() - started

    @property
    def connected(self) -> set[str]:
        return {host.name for host in self.state.activated_hosts}

    def host(self, name: str) -> Any:
        return self.state.inventory.get_host(name)

    def run(self, name: str, command: str, **arguments: Any) -> tuple[bool, str, str]:
        """Success, output and error output of a command."""
        succeeded, output = self.host(name).run_shell_command(StringCommand(command), **arguments)
        return succeeded, output.stdout, output.stderr
