"""The operations about Serf: its files, its agent, and its removal where no membership is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api import operation

from tailtrain.errors import FleetError
from tailtrain.fleet import remote, session, transfer, undo
from tailtrain.fleet.operations import Commands, where_planned
from tailtrain.fleet.steps import must, require_active
from tailtrain.planning import layout
from tailtrain.planning.serf_config import RPC_PORT

if TYPE_CHECKING:
    from pyinfra.api.host import Host

_ANSWERS_SECONDS = 20
# Waits until somebody listens there: the agent does not say when it is ready.
_ANSWERS = f"""
import socket, sys, time
end = time.monotonic() + {_ANSWERS_SECONDS}
while time.monotonic() < end:
    try:
        socket.create_connection(("127.0.0.1", {RPC_PORT}), 1).close()
        sys.exit(0)
    except OSError:
        time.sleep(0.1)
sys.exit(1)
"""


@operation()
def mask() -> Commands:
    """Keep the unit that comes with Debian's package from ever running; stop it where it does."""
    yield from where_planned("mask", _mask)


def _mask(host: Host) -> None:
    unit = layout.DEBIAN_SERF_UNIT
    must(host, ["systemctl", "mask", "--quiet", "--now", unit], what=f"mask {unit}")
    remote.run(host, ["systemctl", "reset-failed", unit])


@operation()
def secrets() -> Commands:
    """The gossip key and the agent's configuration, readable by the worker's account alone."""
    yield from where_planned("gossip", _send_secrets)


def _send_secrets(host: Host) -> None:
    plan = session.current().plan.host(host.name)
    # Stopped first: killed here, the next deploy finds it so, never running with what was there before.
    remote.run(host, ["systemctl", "stop", layout.SERF_UNIT])
    account = layout.ACCOUNT
    for file in plan.serf.files if plan.serf else ():
        content = {file.path: file.content}
        transfer.send_contents(host, content, mode="0600", owner=account, group=account)
        # What is there and right is not written again, whatever its permissions are.
        must(host, ["chown", f"{account}:{account}", file.path], what=f"own {file.path}")
        must(host, ["chmod", "0600", file.path], what=f"close {file.path} to others")


@operation()
def agent() -> Commands:
    """Start the agent, or restart it with what is there now; it also starts when the host boots."""
    yield from where_planned("agent", _start)


def _start(host: Host) -> None:
    unit, plan = layout.SERF_UNIT, session.current().plan.host(host.name)
    written = plan.does("gossip") or any(change.path.endswith(unit) for change in plan.files)
    remote.run(host, ["systemctl", "reset-failed", unit])
    must(host, ["systemctl", "enable", "--quiet", unit], what="enable membership")
    # Why it does not start is in its log, which is shown below.
    # Whoever wrote its files has stopped it before: what runs now runs with them.
    remote.run(host, ["systemctl", "start" if written else "restart", unit], timeout=90)
    answers = remote.run(host, ["python3", "-c", _ANSWERS], timeout=2 * _ANSWERS_SECONDS)
    require_active(host, unit)
    if not answers.ok:
        log = remote.journal(host, unit)
        raise FleetError(f"{unit} does not answer on port {RPC_PORT}; its log ends:\n{log}", host=host.name)


@operation()
def retire() -> Commands:
    """Leave the membership and remove the agent's unit, configuration and key, where none is needed."""
    yield from where_planned("retire", undo.retire_agent)
