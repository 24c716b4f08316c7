"""The machines of the tailnet in one list: the local daemon sees them, the admin API knows more of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tailscale.models import Device

    from tailtrain.tailnet.netmap import Netmap, Peer

SYSTEM_NAMES = {"linux": "Linux", "windows": "Windows", "android": "Android", "freebsd": "FreeBSD"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the tailnet."""

    name: str
    """Short name, in lower case."""
    dns_name: str
    address: str
    os: str
    online: bool | None
    """What the coordination server thinks; None where it does not say."""
    last_seen: datetime | None
    key_expiry: datetime | None
    """When its key expires; None if never, or if that is not known."""
    expired: bool
    ssh: bool | None
    """Whether Tailscale SSH is on there; None where that is not known."""
    tags: tuple[str, ...]
    """Without `tag:`."""
    is_self: bool
    visible: bool
    """Whether this machine's daemon knows it: the policy hides machines that it keeps apart."""
    approved: bool = True
    """Whether an admin let it in, where the tailnet asks for that."""
    external: bool = False
    """Whether another tailnet shares it with this one."""

    @property
    def system(self) -> str:
        """Its operating system, as people write it."""
        return SYSTEM_NAMES.get(self.os, self.os or "unknown")


def machines_of(netmap: Netmap, devices: Sequence[Device] = (), *, now: datetime) -> tuple[Machine, ...]:
    """All machines, this one first, the others by name.

    Args:
        netmap: what the local daemon sees.
        devices: what the admin API lists, where it was asked.
        now: the present, with a time zone.
    """
    known = {address: device for device in devices for address in device.addresses}
    everyone = (netmap.me, *netmap.peers)
    seen = [_with_device(_from_peer(peer), _device_of(peer, known), now) for peer in everyone]
    visible = {address for peer in everyone for address in peer.addresses}
    hidden = [_from_device(device, now) for device in devices if not visible.intersection(device.addresses)]
    others = sorted([*seen[1:], *hidden], key=lambda machine: (machine.name, machine.address))
    return (seen[0], *others)


def impossible(machine: Machine) -> str | None:
    """Why a machine need not even be asked whether it can be a node; None where it can be asked."""
    if not machine.address:
        return "has no address in the tailnet"
    if machine.os not in ("linux", ""):
        return f"{machine.system}: nodes are Linux with systemd"
    if machine.expired:
        on = f" on {machine.key_expiry:%Y-%m-%d}" if machine.key_expiry else ""
        return f"its key expired{on}; run there: sudo tailscale up --force-reauth"
    if not machine.approved:
        return "waits to be approved in the admin console, under Machines"
    if not machine.visible:
        return "the tailnet's policy hides it from this machine; see: tailtrain policy"
    return None


def obstacle(machine: Machine) -> str | None:
    """Why a machine cannot be a node as things are, and what to do; None where nothing speaks against it.

    Whether it is strong and new enough is seen when its hardware is read.
    """
    found = impossible(machine)
    if found is None and not machine.is_self:
        if machine.online is False:
            since = f" since {machine.last_seen:%Y-%m-%d %H:%M} UTC" if machine.last_seen else ""
            return f"offline{since}"
        if machine.ssh is False:
            return "Tailscale SSH is off; run there: sudo tailscale set --ssh"
    return found


def _device_of(peer: Peer, known: Mapping[str, Device]) -> Device | None:
    return next((known[address] for address in peer.addresses if address in known), None)


def _from_peer(peer: Peer) -> Machine:
    return Machine(
        name=peer.name,
        dns_name=peer.dns_name,
        address=peer.address,
        os=_plain(peer.os),
        online=peer.online or peer.is_self,
        last_seen=peer.last_seen,
        key_expiry=peer.key_expiry,
        expired=peer.expired,
        # The daemon advertises no host keys of its own to itself.
        ssh=None if peer.is_self else bool(peer.host_keys),
        tags=peer.tags,
        is_self=peer.is_self,
        visible=True,
    )


def _from_device(device: Device, now: datetime) -> Machine:
    dns_name = device.name.rstrip(".")
    return _with_device(
        Machine(
            name=(dns_name.partition(".")[0] or device.hostname).lower(),
            dns_name=dns_name,
            address=_first_ipv4(device.addresses),
            os=_plain(device.os or ""),
            online=device.connected_to_control,
            last_seen=device.last_seen,
            key_expiry=None,
            expired=False,
            ssh=None,
            tags=(),
            is_self=False,
            visible=False,
        ),
        device,
        now,
    )


def _with_device(machine: Machine, device: Device | None, now: datetime) -> Machine:
    """What the API knows better: expiry and SSH also of this machine, approval, when it was last seen."""
    if device is None:
        return machine
    # Go's zero time, the year 1, says that there is none.
    never = device.key_expiry_disabled or device.expires is None or device.expires.year == 1
    expires = machine.key_expiry or (None if never else device.expires)
    return replace(
        machine,
        last_seen=machine.last_seen or (None if machine.online else device.last_seen),
        key_expiry=expires,
        expired=machine.expired or (expires is not None and expires < now),
        ssh=machine.ssh if machine.ssh or device.ssh_enabled is None else device.ssh_enabled,
        tags=machine.tags or tuple(tag.removeprefix("tag:") for tag in device.tags),
        approved=device.authorized is not False,
        external=device.is_external,
    )


def _first_ipv4(addresses: Sequence[str]) -> str:
    return min(addresses, key=lambda address: ":" in address, default="")


def _plain(system: str) -> str:
    """The daemon and the API write the same systems with other capitals."""
    return system.lower() if system.lower() in SYSTEM_NAMES else system
