"""What is declared, read from pyinfra's inventory before anything is asked of any host."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.fleet.host_settings import host_settings_problems
from tailtrain.planning.actions import Declared
from tailtrain.planning.engines import require_runnable
from tailtrain.planning.receipt import Login
from tailtrain.planning.settings import SETTINGS, parse_settings
from tailtrain.planning.storage_settings import require_remote
from tailtrain.spec import NodeRole, fleet_from_host_data
from tailtrain.spec.problems import Problems, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinfra.api.host import Host
    from pyinfra.api.inventory import Inventory

    from tailtrain.planning.settings import Settings

ROLES = {role.value: role for role in NodeRole}


def declared_fleet(inventory: Inventory) -> Declared:
    """Nodes and settings of an inventory whose groups are named after the roles.

    pyinfra merges a host that is named twice; here that is an error. It remembers, for each host, every
    group it was named in, as often as it was named there: that is what is looked at.

    Raises:
        DeclarationError: all that is wrong, each naming the host and field, or the setting.
        UnsupportedError: for a strategy that this version cannot carry out.
    """
    problems = Problems()
    roles = []
    for host in inventory:
        with problems.gathered():
            roles.append((host.name, _role(host), inventory.host_data[host.name]))
    fleets, settings = [], []
    # Whether the fleet has its primary cannot be said before each host's place in it is clear.
    if not problems.found:
        with problems.gathered():
            fleets = [fleet_from_host_data(roles)]
    problems.found += host_settings_problems(inventory)
    problems.found += _misplaced(inventory)
    with problems.gathered():
        settings = [_at_home(parse_settings({**inventory.data, **inventory.override_data}))]
        require_runnable(settings[0])
        require_remote(settings[0].training, settings[0].storage)
    problems.raise_if_any()
    logins = {host.name: _login(host) for host in inventory}
    return Declared(fleets[0].nodes, fleets[0].reserves, settings[0], logins)


def _at_home(settings: Settings) -> Settings:
    """The settings with `~` in the paths of this machine written out, as a shell does."""
    return replace(
        settings,
        datasets=tuple((domain, _expanded(file, f"datasets.{domain}")) for domain, file in settings.datasets),
        wheels=settings.wheels and _expanded(settings.wheels, "wheels"),
    )


def _expanded(path: str, name: str) -> str:
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        raise DeclarationError(
            "there is no such user here", field=f"group_data: {name}", found=shown(path)
        ) from None


def _login(host: Host) -> Login:
    """How a host is logged in to, for the time when its entry is gone from the inventory."""
    user = host.data.get("ssh_user")
    return Login(None if user is None else str(user), bool(host.data.get("_sudo")))


def _misplaced(inventory: Inventory) -> Iterator[DeclarationError]:
    """Settings by group or host: a run has one training, and they would be passed over there."""
    groups = [(f"group_data/{name}.py", None, data) for name, data in inventory.group_data.items()]
    hosts = [("inventory.py", host.name, inventory.host_data[host.name]) for host in inventory]
    for file, host_name, data in [*groups, *hosts]:
        for name in sorted(SETTINGS.intersection(data)):
            yield DeclarationError(
                "a setting of the training, which is one for the whole fleet",
                host=host_name,
                field=f"{file}: {name}",
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
        meant = next((near for group in host.groups if (near := nearest(group, ROLES))), None)
        raise DeclarationError(
            "a host without a role",
            host=host.name,
            field="inventory.py",
            found=f"groups {', '.join(sorted(set(host.groups)))}",
            expected="an entry in primary or compute",
            fix=f"Did you mean {meant}?" if meant else None,
        )
    return ROLES[next(iter(groups))]
