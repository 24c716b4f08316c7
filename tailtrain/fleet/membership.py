"""Which machines of the tailnet an inventory names: by their addresses, whatever they are called there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.errors import UnknownHostError
from tailtrain.fleet.declared import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyinfra.api.inventory import Inventory

    from tailtrain.tailnet.netmap import Netmap, Peer


@dataclass(frozen=True)
class Membership:
    """The hosts of an inventory in the tailnet.

    Attributes:
        roles: the group of each host, by its address.
        names: how each host is called in the inventory, by its address.
        missing: hosts that no machine of the tailnet bears the name of.
    """

    roles: Mapping[str, str]
    names: Mapping[str, str]
    missing: tuple[str, ...]


def membership(inventory: Inventory, netmap: Netmap) -> Membership:
    """Look the hosts of an inventory up in the tailnet."""
    roles, names, missing = {}, {}, []
    for host in inventory:
        try:
            address = netmap.find(host.data.get("ssh_hostname") or host.name).address
        except UnknownHostError:
            missing.append(host.name)
            continue
        names[address] = host.name
        roles[address] = next((group for group in host.groups if group in ROLES), "without a role")
    return Membership(roles, names, tuple(missing))


def name_for_inventory(netmap: Netmap, peer: Peer) -> str:
    """The shortest name by which the connector finds this machine, and no other."""
    try:
        if netmap.find(peer.name) == peer:
            return peer.name
    except UnknownHostError:
        pass
    return peer.dns_name or peer.address
