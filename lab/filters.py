"""What does not get through to a host: all of it, all but to some, or all direct ways through the tailnet.

A host has at most one such fault at a time, a table of nftables in its own network namespace. The table says
what it is for (the comment of its first rule), so that what is reported is what the kernel does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lab.settings import CONTROL, SWITCH, Settings
from lab.system import run
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ipaddress import IPv4Address

_TABLE = "lab_fault"


def cut_off(settings: Settings, place: str, peers: Mapping[str, int] | None = None) -> None:
    """Drop everything between a host and others.

    Args:
        settings: of the lab.
        place: the host.
        peers: the others, name and index; None: the whole bridge.

    Raises:
        LabError: it is no host, or nftables does not take the rules.
    """
    if peers is None:
        incoming, outgoing, note = 'iifname "eth0"', 'oifname "eth0"', "cut off"
    else:
        addresses = _addresses(settings, peers)
        incoming, outgoing = f"ip saddr {addresses}", f"ip daddr {addresses}"
        note = f"cut off from {', '.join(peers)}"
    _break(
        settings,
        place,
        f"""
          chain incoming {{ type filter hook input priority -500; {incoming} drop comment "{note}"; }}
          chain outgoing {{ type filter hook output priority -500; {outgoing} drop; }}
        """,
    )


def relay(settings: Settings, place: str, peers: Mapping[str, int] | None = None) -> None:
    """Leave only the relay between a host and others: what they send each other directly is lost.

    A direct way counts as one when a ping came back on it. So it is enough to drop what comes in; were
    something dropped on its way out, tailscaled would be told, as no far firewall would tell it.

    Args:
        settings: of the lab.
        place: the host.
        peers: the others, name and index; None: everybody, the control side too.

    Raises:
        LabError: it is no host, or nftables does not take the rules.
    """
    if peers is None:
        # The server's answers (STUN) are how a node finds the relay.
        which, note = f'iifname "eth0" ip saddr != {settings.server}', "relayed"
    else:
        which, note = f"ip saddr {_addresses(settings, peers)}", f"relayed from {', '.join(peers)}"
    rule = f'{which} meta l4proto udp drop comment "{note}"'
    _break(settings, place, f"chain incoming {{ type filter hook input priority -500; {rule}; }}")


def restore(settings: Settings, place: str) -> None:
    """Let everything through again."""
    # The empty declaration makes the deletion valid when there is no such table.
    _nft(settings, place, f"table inet {_TABLE}; delete table inet {_TABLE}")


def fault(settings: Settings, place: str) -> str | None:
    """What `cut_off` or `relay` did to a host, in words; None: nothing, or there is no such namespace."""
    try:
        shown = json.loads(_nft(settings, place, "list ruleset inet", "-j"))
    except LabError:
        return None
    rules = [item["rule"] for item in shown["nftables"] if "rule" in item]
    notes = (rule["comment"] for rule in rules if rule["table"] == _TABLE and "comment" in rule)
    return next(notes, None)


def _break(settings: Settings, place: str, chains: str) -> None:
    if place in (CONTROL, SWITCH):
        raise LabError("only a host can be cut off or relayed", host=place)
    restore(settings, place)
    _nft(settings, place, f"table inet {_TABLE} {{\n{chains}\n}}\n")


def _addresses(settings: Settings, peers: Mapping[str, int]) -> str:
    addresses: list[IPv4Address] = [settings.bridge_address(index) for index in peers.values()]
    return f"{{ {', '.join(map(str, addresses))} }}"


def _nft(settings: Settings, place: str, rules: str, *options: str) -> str:
    return run(["ip", "netns", "exec", settings.netns(place), "nft", *options, rules])
