"""The lab's network: one bridge in a namespace of its own, and a namespace with one link to it per host.

Nothing of it is in the machine's own network namespace: no address, no route, no filter rule. So nothing
leaves the lab, and several labs can use the same addresses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lab import filters, rates, slow
from lab.settings import SWITCH, Settings
from lab.system import run

_BRIDGE = "bridge"
_NETNS = Path("/run/netns")


def ensure_switch(settings: Settings) -> bool:
    """Make the bridge's namespace, unless it is whole; gives whether anything had to be made."""
    namespace = settings.netns(SWITCH)
    _ensure_namespace(namespace)
    bridge = _links(namespace).get(_BRIDGE)
    if bridge and bridge.up:
        return False
    if bridge is None:
        _ip(namespace, "link", "add", _BRIDGE, "type", "bridge")
    address = f"{settings.server}/{settings.network.prefixlen}"
    _ip(namespace, "address", "replace", address, "dev", _BRIDGE)
    _ip(namespace, "link", "set", _BRIDGE, "up")
    return True


def ensure_link(settings: Settings, place: str, index: int) -> bool:
    """Make a host's namespace and link, unless they are whole; gives whether anything had to be made.

    Nothing is cut off, relayed, narrow or slow after it.
    """
    namespace, switch = settings.netns(place), settings.netns(SWITCH)
    _ensure_namespace(namespace)
    port = f"port{index}"
    inner, outer = _links(namespace).get("eth0"), _links(switch).get(port)
    filters.restore(settings, place)
    rates.unlimit(settings, place, index)
    if inner and outer and inner.up and outer.up and outer.master == _BRIDGE:
        return False
    slow.speed_up(settings, index)
    if inner:
        _ip(namespace, "link", "delete", "eth0")
    if outer and port in _links(switch):  # deleting one end of a pair deletes the other
        _ip(switch, "link", "delete", port)
    _ip(switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _ip(switch, "link", "set", port, "master", _BRIDGE, "up")
    address = f"{settings.bridge_address(index)}/{settings.network.prefixlen}"
    _ip(namespace, "address", "add", address, "dev", "eth0")
    _ip(namespace, "link", "set", "eth0", "up")
    return True


def holds(settings: Settings, place: str, pid: int) -> bool:
    """Whether this process is in the namespace of this place, and not in one that has lost its name."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == (_NETNS / settings.netns(place)).stat().st_ino
    except OSError:
        return False


def remove(settings: Settings, place: str) -> None:
    """Remove a namespace with all links in it, if it is there."""
    namespace = settings.netns(place)
    if (_NETNS / namespace).exists():
        run(["ip", "netns", "delete", namespace])


def present(settings: Settings) -> set[str]:
    """The places (hosts, CONTROL, SWITCH) that have a namespace."""
    prefix = settings.netns("")
    if not _NETNS.is_dir():
        return set()
    names = (entry.name for entry in _NETNS.iterdir())
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def _ensure_namespace(namespace: str) -> None:
    path = _NETNS / namespace
    if path.exists():
        if _is_namespace(path):
            return
        path.unlink()  # a plain file: the machine was restarted, or an earlier run was killed half way
    run(["ip", "netns", "add", namespace])
    _ip(namespace, "link", "set", "lo", "up")


def _is_namespace(path: Path) -> bool:
    """Whether a namespace is mounted on this file."""
    return path.stat().st_dev != path.parent.stat().st_dev


@dataclass(frozen=True)
class _Link:
    up: bool
    master: str | None


def _links(namespace: str) -> dict[str, _Link]:
    """The links of a namespace."""
    shown = run(["ip", "-netns", namespace, "-json", "link", "show"])
    return {
        link["ifname"]: _Link(up="UP" in link["flags"], master=link.get("master"))
        for link in json.loads(shown)
    }


def _ip(namespace: str, *arguments: str) -> None:
    run(["ip", "-netns", namespace, *arguments])
