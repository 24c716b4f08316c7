"""The lab's tailnet: the coordination server, the control side's tailscaled, and logging nodes in."""

from __future__ import annotations

import http.client
import json
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode

from lab import cgroups, network
from lab.processes import last_lines, launch, wait_for
from lab.settings import CONTROL, SWITCH, Settings
from lab.state import Process
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

CONTROL_NAME = "lab-control"
"""The control side's name in the tailnet."""

SOCKET = "/run/tailscale/tailscaled.sock"

_START_SECONDS = 30.0
_LOGIN_SECONDS = 90

SSHPolicy = Literal["accept", "deny", "check"]


@dataclass(frozen=True)
class Node:
    """A node as the coordination server sees it."""

    name: str
    address: str
    online: bool
    expired: bool
    ssh: SSHPolicy


class Coordination:
    """The coordination server of a lab, asked and changed through its admin socket."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def ensure(self, running: Process | None, binaries: Path) -> Process:
        """Start the server unless it runs; gives its process.

        A server that was started anew knows no node: all have to log in again.
        """
        place = self._settings
        if running and running.alive and network.holds(place, SWITCH, running.pid) and self._answers():
            return running
        cgroups.kill(self._settings.cgroup, SWITCH)
        doors = cgroups.create(self._settings.cgroup, SWITCH)
        log = self._settings.state / "coordination.log"
        pid_file = self._settings.state / "coordination.pid"
        pid_file.unlink(missing_ok=True)
        script = f"""
            echo $$ > {shlex.quote(str(pid_file))}
            exec nsenter --net=/run/netns/{self._settings.netns(SWITCH)} -- \
                {shlex.quote(str(binaries / "usr/local/libexec/coordination"))} \
                -address {self._settings.server} -admin {shlex.quote(str(self._settings.admin_socket))}
        """
        launch(doors, script, log)
        wait_for(
            lambda: self._answers() or None,
            seconds=_START_SECONDS,
            otherwise=lambda: LabError(f"the coordination server does not start: {last_lines(log)}"),
        )
        return Process.of(int(pid_file.read_text()))

    def nodes(self) -> list[Node]:
        """All nodes that have joined.

        Raises:
            LabError: the server does not answer.
        """
        found = json.loads(self._ask("GET", "/nodes"))
        return [Node(**node) for node in found]

    def node(self, name: str) -> Node | None:
        """The node of this name, the one that is online if there are several; None when it never joined."""
        named = [node for node in self.nodes() if node.name == name]
        return max(named, key=lambda node: node.online, default=None)

    def set_ssh_policy(self, name: str, action: SSHPolicy) -> None:
        """Set what the tailnet's policy says of logins to this node."""
        self._ask("POST", "/ssh", node=name, action=action)

    def set_key_expired(self, name: str, *, expired: bool) -> None:
        """Let this node's key expire, or be valid again."""
        self._ask("POST", "/expire", node=name, expired=str(expired).lower())

    def forget(self, name: str) -> None:
        """Take every node of this name off the tailnet, if there is one."""
        if self.node(name) is not None:
            self._ask("POST", "/forget", node=name)

    def _answers(self) -> bool:
        try:
            self._ask("GET", "/nodes")
        except LabError:
            return False
        return True

    def _ask(self, method: str, path: str, **query: str) -> bytes:
        connection = _UnixConnection(self._settings.admin_socket)
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            connection.request(method, target)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LabError(
                f"the lab's coordination server does not answer ({error})", fix="Type: python -m lab up"
            ) from error
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise LabError(f"the coordination server refused {target}: {body.decode().strip()}")
        return body


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ensure_control(settings: Settings, running: Process | None, binaries: Path) -> Process:
    """Start the control side's tailscaled unless it runs; gives its process.

    It has a mount namespace of its own, which `lab exec` joins: there /run is fresh but for the network
    namespaces, so the socket is at the standard path and the machine's D-Bus is out of reach, and what is
    written to /etc stays in the lab.
    """
    if running is not None and running.alive:
        return running
    cgroups.kill(settings.cgroup, CONTROL)
    doors = cgroups.create(settings.cgroup, CONTROL)
    place = settings.control_dir
    for part in ("etc", "etc-work", "run"):
        (place / part).mkdir(parents=True, exist_ok=True)
    resolv = place / "etc" / "resolv.conf"
    if not resolv.exists():
        resolv.write_text("")
    pid_file, log = place / "pid", place / "tailscaled.log"
    for old in (pid_file, log):
        old.unlink(missing_ok=True)
    inner = f"""
        mount -n -t overlay overlay -o lowerdir=/etc,upperdir={place}/etc,workdir={place}/etc-work /etc
        mount -n -t tmpfs -o mode=755 tmpfs {place}/run
        mkdir -p {place}/run/tailscale {place}/run/lock {place}/run/user {place}/run/netns
        mount -n --rbind /run/netns {place}/run/netns
        mount -n --move {place}/run /run
        echo $$ > {place}/pid
        exec env TS_NO_LOGS_NO_SUPPORT=true {binaries}/usr/local/bin/tailscaled \
            --state={place}/tailscaled.state --statedir={place}/tailscaled --socket={SOCKET} --port=41641
    """
    script = f"""
        exec nsenter --net=/run/netns/{settings.netns(CONTROL)} -- \
            unshare --mount --propagation slave sh -euc {shlex.quote(inner)}
    """
    launch(doors, script, log)

    def started() -> Process | None:
        try:
            process = Process.of(int(pid_file.read_text()))
        except (OSError, ValueError):
            return None
        return process if Path(f"/proc/{process.pid}/root{SOCKET}").exists() else None

    return wait_for(
        started,
        seconds=_START_SECONDS,
        otherwise=lambda: LabError(f"the control side's tailscaled does not start: {last_lines(log)}"),
    )


def log_in(
    name: str,
    tailscale: Callable[..., str],
    *,
    server: Coordination,
    url: str,
    ssh: bool,
) -> Node:
    """Make sure that a node is in the tailnet; gives it as the server sees it.

    Args:
        name: its name in the tailnet.
        tailscale: runs the tailscale command where the node is.
        server: the lab's coordination server.
        url: where nodes find it.
        ssh: whether the node serves Tailscale SSH.

    Raises:
        LabError: it does not get online.
    """
    options = ["--ssh"] if ssh else []
    tailscale("up", f"--login-server={url}", f"--hostname={name}", f"--timeout={_LOGIN_SECONDS}s", *options)

    def online() -> Node | None:
        node = server.node(name)
        return node if node is not None and node.online else None

    return wait_for(
        online,
        seconds=_START_SECONDS,
        otherwise=lambda: LabError("the node does not get online", host=name),
    )
