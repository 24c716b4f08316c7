"""What is declared, read from pyinfra's inventory before anything is asked of any host."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.planning.actions import Declared
from tailtrain.planning.engines import require_runnable
from tailtrain.planning.receipt import Login
from tailtrain.planning.settings import SETTINGS, parse_settings
from tailtrain.spec import NodeRole, fleet_from_host_data

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.inventory import Inventory

ROLES = {role.value: role for role in NodeRole}


def declared_fleet(inventory: Inventory) -> Declared:
    """Nodes and settings of an inventory whose groups are named after the roles.

    pyinfra merges a host that is named twice; here that is an error. It remembers, for each host, every
    group it was named in, as often as it was named there: that is what is looked at.

    Raises:
        DeclarationError: naming the host and field, or the setting.
        UnsupportedError: for a strategy that this version cannot carry out.
    """
    roles = [(host.name, _role(host), inventory.host_data[host.name]) for host in inventory]
    fleet = fleet_from_host_data(roles)
    _require_in_all(inventory)
    settings = parse_settings({**inventory.data, **inventory.override_data})
    require_runnable(settings.training)
    logins = {host.name: _login(host) for host in inventory}
    return Declared(fleet.nodes, fleet.reserves, settings, logins)


def _login(host: Host) -> Login:
    """How a host is logged in to, for the time when its entry is gone from the inventory."""
    user = host.data.get("ssh_user")
    return Login(None if user is None else str(user), bool(host.data.get("_sudo")))


def _require_in_all(inventory: Inventory) -> None:
    """A run has one training: its settings cannot differ by group or host, and would be passed over there."""
    groups = [(f"group_data/{name}.py", None, inventory.get_group_data(name)) for name in inventory.groups]
    hosts = [("inventory.py", host.name, inventory.host_data[host.name]) for host in inventory]
    for file, host_name, data in [*groups, *hosts]:
        misplaced = sorted(SETTINGS.intersection(data or {}))
        if misplaced and file != "group_data/all.py":
            raise DeclarationError(
                "a setting of the training, which is one for the whole fleet",
                host=host_name,
                field=f"{file}: {misplaced[0]}",
                fix="Set it in group_data/all.py",
            )


def _role(host: Host) -> NodeRole:
    groups = Counter(group for group in host.groups if group in ROLES)
    if groups.total() > 1:
        named = ", ".join(f"{name} {count} times" if count > 1 else name for name, count in groups.items())
        raise DeclarationError(
            "the same host is named more than once",
            host=host.name,
            field="inventory.py",
            found=named,
            expected="one entry in one group",
            fix="Remove all but one of its entries",
        )
    if not groups:
        raise DeclarationError(
            "a host without a role",
            host=host.name,
            field="inventory.py",
            found=f"groups {', '.join(sorted(set(host.groups)))}",
            expected="an entry in primary or compute",
        )
    return ROLES[next(iter(groups))]
