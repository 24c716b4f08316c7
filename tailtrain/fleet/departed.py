"""Hosts that have something of this fleet's and are no longer in the inventory.

pyinfra's inventory is fixed when it starts. They stand in a second one, with a state of its own, which no
operation of the deploy runs on: only commands that are sent to one host (`fleet.remote`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gevent.pool import Pool
from pyinfra.api import Config, Inventory, State
from pyinfra.api.exceptions import ConnectError

from tailtrain.fleet import undo
from tailtrain.fleet.membership import membership
from tailtrain.planning.departed import DepartedFound
from tailtrain.planning.observed import Unreachable
from tailtrain.tailnet.daemon import current_netmap
from tailtrain.tailnet.preflight import check_hosts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pyinfra.api.host import Host

    from tailtrain.planning.receipt import Login
    from tailtrain.planning.undoing import Belongings

CONNECT_SECONDS = 5
"""A host that is gone for good must not hold up every plan."""


def connect(logins: Mapping[str, Login], state: State) -> dict[str, Host | str]:
    """Connect to hosts by their names in the tailnet, all at once.

    Args:
        logins: names with how to log in, from receipts.
        state: pyinfra's state of the fleet; settings of its inventory for all hosts count here as well.

    Returns:
        Each name with its host, or with the reason why it cannot be reached. Give the hosts to `disconnect`.
    """
    if not logins:
        return {}
    found: dict[str, Host | str] = dict(_absent(logins))
    names = [(f"@tailscale/{name}", _data(login)) for name, login in logins.items() if name not in found]
    if not names:
        return found
    inventory = Inventory((names, state.inventory.data), override_data=state.inventory.override_data)
    apart = State(inventory, Config(CONNECT_TIMEOUT=CONNECT_SECONDS), check_for_changes=False)
    apart.cwd = state.cwd
    return found | reach(apart.inventory)


def really_left(logins: Mapping[str, Login], inventory: Inventory) -> dict[str, Login]:
    """Those of these hosts that are other machines than all of an inventory's, whatever name each goes by."""
    if not logins:
        return {}
    netmap = current_netmap()
    declared = membership(inventory, netmap).names
    return {
        name: login
        for name, login in logins.items()
        if not any(peer.address in declared for peer in netmap.named(name))
    }


def _absent(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Hosts of which the tailnet says that they are not there: a machine that was sold costs no waiting."""
    for host in check_hosts(current_netmap(), names, now=datetime.now(UTC)):
        if host.problem is not None:
            yield host.name, str(host.problem).removeprefix(f"{host.name}: ")
        elif not host.online and not host.is_self:
            yield host.name, host.warnings[0]


def _data(login: Login) -> dict[str, Any]:
    data: dict[str, Any] = {"_sudo": login.sudo, "ssh_connect_retries": 0}
    return data | ({"ssh_user": login.ssh_user} if login.ssh_user else {})


def reach(hosts: Iterable[Host]) -> dict[str, Host | str]:
    """Connect to hosts, all at once; each name with its host, or with the reason against it."""

    def open_one(host: Host) -> tuple[str, Host | str]:
        try:
            host.connect(show_errors=False, raise_exceptions=True)
        except ConnectError as error:
            return host.name, str(error)
        return host.name, host

    hosts = list(hosts)
    found = dict(Pool(64).imap_unordered(open_one, hosts))
    return {host.name: found[host.name] for host in hosts}


def disconnect(found: Mapping[str, Host | str]) -> None:
    """Close the connections of `connect`."""
    Pool(64).map(
        lambda host: host.disconnect(), [host for host in found.values() if not isinstance(host, str)]
    )


def look(found: Mapping[str, Host | str]) -> dict[str, Belongings | Unreachable]:
    """What of ours is on each host that `connect` gave, in its order; or why that is not known."""
    answers = undo.look_at(host for host in found.values() if not isinstance(host, str))
    return {
        name: Unreachable(name, host) if isinstance(host, str) else answers[name]
        for name, host in found.items()
    }


def for_planning(
    logins: Mapping[str, Login], found: Mapping[str, Host | str], declared: Collection[str]
) -> tuple[DepartedFound, ...]:
    """What plans need to know of each host that left, having looked at those that `connect` reached.

    Args:
        logins: as for `connect`.
        found: what `connect` gave.
        declared: peer ids of the inventory's hosts. A host with one of them is the same machine, reached in
            another way: it has not left.
    """
    return tuple(
        _for_planning(name, logins[name], answer)
        for name, answer in look(found).items()
        if isinstance(answer, Unreachable) or not answer.receipt or answer.receipt.peer_id not in declared
    )


def _for_planning(name: str, login: Login, answer: Belongings | Unreachable) -> DepartedFound:
    if isinstance(answer, Unreachable):
        return DepartedFound(name, login, gone=not current_netmap().named(name), unreachable=answer.reason)
    run = answer.unfinished
    return DepartedFound(
        name,
        login,
        # What must not be removed can be stopped all the same.
        unreachable=answer.obstacle or None,
        working=answer.busy and answer.superuser,
        run=run.run_id if run else "",
        bytes=None if answer.nothing or answer.obstacle else answer.bytes,
        lock=answer.lock,
    )
