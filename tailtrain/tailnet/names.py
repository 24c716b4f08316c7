"""What is said of a name that nobody in the tailnet has, or several machines have."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from tailtrain.errors import UnknownHostError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailtrain.tailnet.netmap import Peer


def ambiguous(name: str, matches: Iterable[Peer]) -> UnknownHostError:
    """Several machines have the name: who they are."""
    found = "; ".join(
        f"{peer.dns_name or peer.host_name} at {peer.address}{'' if peer.online else ', offline'}"
        for peer in matches
    )
    return UnknownHostError(
        "more than one machine of the tailnet has this name",
        host=name,
        found=found,
        fix="Put the full DNS name or the address into the inventory, or remove the machine that is gone",
    )


def unknown(name: str, everyone: Iterable[Peer]) -> UnknownHostError:
    """Nobody has the name: who has one like it, and who there is."""
    names = sorted({peer.name for peer in everyone if peer.name})
    near = get_close_matches(name.split(".", maxsplit=1)[0].lower(), names, n=3, cutoff=0.6)
    shown = 12
    known = ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
    return UnknownHostError(
        "no machine of the tailnet has this name",
        host=name,
        found=known or "an empty tailnet",
        fix=f"Did you mean {' or '.join(near)}?" if near else "See `tailscale status` for the names",
    )
