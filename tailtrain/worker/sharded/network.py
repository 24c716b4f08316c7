"""Sockets and processes of this engine: bound to one address, gone with their parent."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import signal
import socket
import subprocess

from tailtrain.errors import WorkerError

_PR_SET_PDEATHSIG = 1
_IP = "ip"
_BACKLOG = 64


def interface_of(address: str) -> str:
    """The network interface that carries an address, for GLOO_SOCKET_IFNAME.

    Gloo otherwise listens on the address of the host's name, which Debian maps to 127.0.1.1.

    Raises:
        WorkerError: no interface of this node carries it.
    """
    wanted = ipaddress.IPv4Address(address)
    done = subprocess.run([_IP, "-4", "-o", "addr"], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        match line.split():
            case [_, name, "inet", network, *_] if wanted == ipaddress.IPv4Interface(network).ip:
                return name
    # The kernel answers on all of 127.0.0.0/8.
    if wanted.is_loopback:
        return "lo"
    raise WorkerError(
        "no network interface carries this node's address",
        field=address,
        found=done.stderr.strip() or None,
        fix="Check that the tailnet is up on this node: tailscale status",
    )


def listen_on(address: str, port: int) -> socket.socket:
    """A listening socket on this address alone.

    Raises:
        WorkerError: the address is not this node's, or the port is taken.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise WorkerError("cannot listen", field=f"{address}:{port}", found=error.strerror) from error
    return listening


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends (prctl(2)).

    Nothing else would end the agent after a SIGKILL of its supervisor.

    Args:
        parent: the process id that the parent said it has; if it is gone already, this process ends now.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
