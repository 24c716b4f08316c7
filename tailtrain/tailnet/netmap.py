"""Who is on the tailnet, as the local Tailscale daemon tells it.

The source is `tailscale status --json`, whose fields are those of `Status` and `PeerStatus` in the Go package
tailscale.com/ipn/ipnstate. Reading is lenient: unknown fields are passed over, missing ones have a default,
so that other versions of the daemon are understood.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import msgspec

from tailtrain.errors import DaemonError
from tailtrain.tailnet.names import ambiguous, unknown

_FUNNEL_HOST_NAME = "funnel-ingress-node"
_MULLVAD_SUFFIX = ".mullvad.ts.net"


class _PeerDocument(msgspec.Struct, rename="pascal"):
    """The part of ipnstate.PeerStatus that we read. Go writes an empty slice as null."""

    host_name: str = ""
    dns_name: str = msgspec.field(default="", name="DNSName")
    os: str = msgspec.field(default="", name="OS")
    tailscale_ips: list[str] | None = msgspec.field(default=None, name="TailscaleIPs")
    tags: list[str] | None = None
    cur_addr: str = ""
    relay: str = ""
    peer_relay: str = ""
    last_seen: str | None = None
    online: bool = False
    active: bool = False
    host_keys: list[str] | None = msgspec.field(default=None, name="sshHostKeys")
    sharee_node: bool = False
    expired: bool = False
    key_expiry: str | None = None


class _StatusDocument(msgspec.Struct, rename="pascal"):
    """The part of ipnstate.Status that we read."""

    backend_state: str = ""
    auth_url: str = msgspec.field(default="", name="AuthURL")
    tun: bool = msgspec.field(default=True, name="TUN")
    health: list[str] | None = None
    own: _PeerDocument | None = msgspec.field(default=None, name="Self")
    peer: dict[str, _PeerDocument] | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """One machine of the tailnet, as this machine's daemon sees it."""

    name: str
    """Short name: the first label of the DNS name, else the machine's own host name, in lower case."""
    dns_name: str
    """Full name without the dot at its end; empty where the tailnet has no DNS."""
    host_name: str
    """What the machine calls itself. Not unique: a machine that was set up again keeps it."""
    addresses: tuple[str, ...]
    """Tailnet addresses, IPv4 before IPv6."""
    online: bool
    """The coordination server's opinion. It can be wrong, so nothing is skipped because of it."""
    active: bool
    """Whether traffic was exchanged in the last minutes; without it no path is known."""
    direct: str
    """Address and port of the direct path, empty if there is none."""
    relay: str
    """Region code of the relay that the peer is reached through when there is no direct path."""
    peer_relay: str
    """Address of the peer relay in use, empty if there is none."""
    last_seen: datetime | None
    """When the coordination server last saw it; None while it is online or unknown."""
    key_expiry: datetime | None
    """When its node key expires; None if it never does."""
    expired: bool
    """The daemon has dropped this peer because its key expired."""
    host_keys: tuple[str, ...]
    """SSH host keys, as in known_hosts without the name. Only advertised while Tailscale SSH is on."""
    tags: tuple[str, ...]
    """Access tags without `tag:`."""
    os: str
    is_self: bool

    @property
    def address(self) -> str:
        """The address to dial: the first IPv4 address, else the first IPv6 address, else empty."""
        return self.addresses[0] if self.addresses else ""

    @property
    def path(self) -> str:
        """How the peer is reached: `direct 192.0.2.7:41641`, `relayed via fra` or `unknown`."""
        if self.is_self:
            return "local"
        if self.direct:
            return f"direct {self.direct}"
        if self.peer_relay:
            return f"relayed via peer {self.peer_relay}"
        if self.active and self.relay:
            return f"relayed via {self.relay}"
        return "unknown"


@dataclass(frozen=True)
class Netmap:
    """The tailnet at one moment."""

    me: Peer
    peers: tuple[Peer, ...]
    """All machines that can be hosts, without this one."""
    has_device: bool
    """False when the daemon runs in userspace networking: the tailnet's addresses cannot be dialled then."""
    read_at: float
    """Monotonic time of reading, in seconds."""

    def find(self, name: str) -> Peer:
        """The machine of that name.

        Args:
            name: a short name, a full DNS name or a tailnet address; the case does not matter.

        Raises:
            UnknownHostError: nobody, or more than one machine, is called that.
        """
        wanted = name.strip().rstrip(".").lower()
        for names in self._names:
            matches = names.get(wanted, [])
            if len(matches) > 1:
                raise ambiguous(name, matches)
            if matches:
                return matches[0]
        raise unknown(name, (self.me, *self.peers))

    def named(self, name: str) -> tuple[Peer, ...]:
        """All machines that go by a name or address, in whatever way."""
        wanted = name.strip().rstrip(".").lower()
        return tuple(dict.fromkeys(peer for names in self._names for peer in names.get(wanted, [])))

    @cached_property
    def _names(self) -> tuple[dict[str, list[Peer]], ...]:
        """Who is called what, the most exact first: what the tailnet made unique wins over own names."""
        exact, short, own = (defaultdict[str, list[Peer]](list) for _ in range(3))
        for peer in (self.me, *self.peers):
            for each in {peer.dns_name.lower(), *peer.addresses}:
                exact[each].append(peer)
            short[peer.name].append(peer)
            own[peer.host_name.lower()].append(peer)
        return exact, short, own

    def namesakes(self, peer: Peer) -> tuple[Peer, ...]:
        """Other machines with the same own host name, as a machine that was set up twice has."""
        alike = self._names[-1].get(peer.host_name.lower(), ()) if peer.host_name else ()
        return tuple(other for other in alike if other != peer)


def parse_status(document: bytes | str, *, read_at: float = 0.0) -> Netmap:
    """Read a status document.

    Args:
        document: the JSON that `tailscale status --json` prints.
        read_at: monotonic time of reading, in seconds.

    Raises:
        DaemonError: the document is no status, or the daemon is not connected to a tailnet; the message
            says what to run.
    """
    try:
        status = msgspec.json.decode(document, type=_StatusDocument)
    except msgspec.DecodeError as error:
        raise DaemonError(
            "the Tailscale daemon's status cannot be read",
            field="tailscale status --json",
            found=str(error),
            fix="Update Tailscale on this machine, then look at `tailscale status --json`",
        ) from error
    _check_backend(status)
    if status.own is None:
        raise DaemonError(
            "the Tailscale daemon does not know its own machine yet",
            field="tailscale status --json",
            found="no field Self",
            fix="Wait a moment and run again",
        )
    me = _peer(status.own, is_self=True)
    if me.expired:
        raise DaemonError(
            f"this machine's own Tailscale key expired{_on(me.key_expiry)}",
            host=me.name,
            fix="Run here: sudo tailscale up --force-reauth",
        )
    peers = tuple(
        sorted(
            (_peer(peer, is_self=False) for peer in (status.peer or {}).values() if _can_be_host(peer)),
            key=lambda peer: (peer.name, peer.addresses),
        )
    )
    return Netmap(me=me, peers=peers, has_device=status.tun, read_at=read_at)


def _check_backend(status: _StatusDocument) -> None:
    state = status.backend_state
    if state == "Running":
        return
    login = (
        f"Run: sudo tailscale up, and open {status.auth_url}" if status.auth_url else "Run: sudo tailscale up"
    )
    problems = {
        "NeedsLogin": ("this machine is not logged in to a tailnet", login),
        "NeedsMachineAuth": (
            "this machine waits to be approved",
            "Approve it in the admin console (Machines), then run again",
        ),
        "Stopped": ("Tailscale is stopped on this machine", "Run: sudo tailscale up"),
        "Starting": ("Tailscale is still starting on this machine", "Wait a moment and run again"),
        "NoState": ("the Tailscale daemon has no state yet", "Run: sudo tailscale up"),
        "InUseOtherUser": (
            "the Tailscale daemon serves another user of this machine",
            "Log that user out of Tailscale, then run: sudo tailscale up",
        ),
    }
    problem, fix = problems.get(state, ("the Tailscale daemon is not connected", "Run: sudo tailscale up"))
    raise DaemonError(problem, field="BackendState", found=state or "nothing", expected="Running", fix=fix)


def _can_be_host(peer: _PeerDocument) -> bool:
    """Whether the peer is a machine, not a user who was given a share, a Funnel relay or a VPN exit."""
    return not (
        peer.sharee_node
        or peer.host_name == _FUNNEL_HOST_NAME
        or peer.dns_name.rstrip(".").lower().endswith(_MULLVAD_SUFFIX)
    )


def _peer(document: _PeerDocument, *, is_self: bool) -> Peer:
    dns_name = document.dns_name.rstrip(".")
    addresses = sorted(document.tailscale_ips or [], key=_is_ipv6)
    return Peer(
        name=(dns_name.split(".")[0] or document.host_name).lower(),
        dns_name=dns_name,
        host_name=document.host_name,
        addresses=tuple(addresses),
        online=document.online,
        active=document.active,
        direct=document.cur_addr,
        relay=document.relay,
        peer_relay=document.peer_relay,
        last_seen=_moment(document.last_seen),
        key_expiry=_moment(document.key_expiry),
        expired=document.expired,
        host_keys=tuple(document.host_keys or ()),
        tags=tuple(tag.removeprefix("tag:") for tag in document.tags or ()),
        os=document.os,
        is_self=is_self,
    )


def _is_ipv6(address: str) -> bool:
    return ":" in address


def _moment(text: str | None) -> datetime | None:
    """Go's time, whose zero (year 1) means that there is none."""
    if not text:
        return None
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None if moment.year == 1 else moment


def _on(moment: datetime | None) -> str:
    return f" on {moment:%Y-%m-%d}" if moment else ""
