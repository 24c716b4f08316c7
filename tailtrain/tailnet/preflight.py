"""What the netmap alone tells about the hosts of an inventory, before anything is connected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from tailtrain.errors import TailtrainError, UnknownHostError
from tailtrain.tailnet import explain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from tailtrain.tailnet.netmap import Netmap, Peer

EXPIRY_NOTICE = timedelta(days=14)
"""A run should not end because a key did; node keys last 180 days unless the tailnet says otherwise."""


@dataclass(frozen=True, slots=True)
class HostPreflight:
    """One host of the inventory in the netmap."""

    name: str
    """As in the inventory, without the connector."""
    address: str
    """Empty if the host is not known."""
    path: str
    """`direct 192.0.2.7:41641`, `relayed via fra`, `local` or `unknown` (no traffic lately)."""
    online: bool
    is_self: bool
    key_expiry: datetime | None
    """When its node key expires; None if never, or if the host is not known."""
    problem: TailtrainError | None
    """Why the host cannot be used; None if nothing speaks against it."""
    warnings: tuple[str, ...]
    """What may go wrong or be slow, in plain words."""


def check_hosts(
    netmap: Netmap, names: Iterable[str], *, now: datetime, expiry_notice: timedelta = EXPIRY_NOTICE
) -> tuple[HostPreflight, ...]:
    """Look each host up and say what stands out, in the order given.

    Args:
        netmap: the tailnet.
        names: as for `Netmap.find`.
        now: the present, with a time zone.
        expiry_notice: how long before a key expires to warn.
    """
    return tuple(_check(netmap, name, now, expiry_notice) for name in names)


def _check(netmap: Netmap, name: str, now: datetime, expiry_notice: timedelta) -> HostPreflight:
    try:
        peer = netmap.find(name)
    except UnknownHostError as error:
        return HostPreflight(name, "", "unknown", False, False, None, error, ())
    return HostPreflight(
        name=name,
        address=peer.address,
        path=peer.path,
        online=peer.online,
        is_self=peer.is_self,
        key_expiry=peer.key_expiry,
        problem=explain.expired(name, peer) if peer.expired else None,
        warnings=tuple(_warnings(netmap, peer, now, expiry_notice)),
    )


def _warnings(netmap: Netmap, peer: Peer, now: datetime, expiry_notice: timedelta) -> Iterable[str]:
    if not peer.online and not peer.is_self:
        since = f" since {peer.last_seen.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if peer.last_seen else ""
        yield f"the tailnet says it is offline{since}"
    if peer.path.startswith("relayed"):
        yield f"{peer.path}: transfers are slow; a direct path needs UDP port 41641 let through"
    if peer.key_expiry is not None and not peer.expired and peer.key_expiry - now < expiry_notice:
        days = (peer.key_expiry - now) / timedelta(days=1)
        yield f"its Tailscale key expires on {peer.key_expiry:%Y-%m-%d}, in {max(days, 0):.0f} days"
    if not peer.host_keys and not peer.is_self:
        yield "Tailscale SSH is off there, so its own SSH server and known_hosts are used"
    if namesakes := netmap.namesakes(peer):
        others = ", ".join(other.dns_name or other.address for other in namesakes)
        yield f"another machine also calls itself {peer.host_name}: {others}"
