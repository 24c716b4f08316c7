"""Narrow links: so many bits a second, and no more, to and from a place, until that is undone.

The kernel's token bucket on either end of a link holds back what leaves there, each frame with its headers.
Room for 50 ms of waiting, as a home router has it: what comes faster for longer is lost, and TCP slows down.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lab.settings import SWITCH, Settings
from lab.system import run
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUEUE = "50ms"
_BURST_BYTES = 128 << 10
"""At least one whole segment as tailscaled hands them to the kernel, 64 KiB, and a clock tick of 1 Gbit/s."""
_BITS = 8
_MEGA = 1_000_000


def limit(settings: Settings, place: str, index: int, mbit: float) -> None:
    """Let no more through a link than this, in each direction by itself.

    Args:
        settings: of the lab.
        place: the host, or the control side.
        index: of the place on the bridge.
        mbit: millions of bits a second.

    Raises:
        LabError: no such rate, or the kernel cannot do it.
    """
    if not 0.1 <= mbit <= 10_000:  # noqa: PLR2004 - said in the message
        raise LabError("a link's rate is from 0.1 to 10000 Mbit/s", field="rate", found=f"{mbit:g} Mbit/s")
    bucket = ["tbf", "rate", f"{mbit * _MEGA:.0f}bit", "burst", str(_BURST_BYTES), "latency", _QUEUE]
    for namespace, device in _ends(settings, place, index):
        _tc(namespace, "qdisc", "replace", "dev", device, "root", *bucket)


def unlimit(settings: Settings, place: str, index: int) -> None:
    """Undo `limit`, if there is anything to undo."""
    for namespace, device in _ends(settings, place, index):
        if _rate(namespace, device) is not None:
            _tc(namespace, "qdisc", "delete", "dev", device, "root")


def rate(settings: Settings, place: str, index: int) -> float | None:
    """What a link is limited to, in Mbit/s, as the kernel has it; None: it is not, or there is no link."""
    namespace, device = next(_ends(settings, place, index))
    return _rate(namespace, device)


def _ends(settings: Settings, place: str, index: int) -> Iterator[tuple[str, str]]:
    """Namespace and name of a link's two ends."""
    yield settings.netns(place), "eth0"
    yield settings.netns(SWITCH), f"port{index}"


def _rate(namespace: str, device: str) -> float | None:
    try:
        found = json.loads(_tc(namespace, "-json", "qdisc", "show", "dev", device))
    except LabError:
        return None  # no such namespace or device: nothing is limited there
    rates = (queue["options"]["rate"] for queue in found if queue["kind"] == "tbf")
    return next((per_second * _BITS / _MEGA for per_second in rates), None)


def _tc(namespace: str, *arguments: str) -> str:
    return run(["tc", "-netns", namespace, *arguments])
