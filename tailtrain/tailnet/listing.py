"""The machines of the tailnet against the inventory: one document, shown as a table or as JSON."""

from __future__ import annotations

import shlex
from datetime import datetime  # msgspec reads the annotations
from typing import TYPE_CHECKING

import msgspec

from tailtrain.planning.rendering.text import printable, table, wrapped
from tailtrain.tailnet.credentials import HOW_TO_SET
from tailtrain.tailnet.devices import SYSTEM_NAMES, obstacle
from tailtrain.tailnet.preflight import EXPIRY_NOTICE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailtrain.tailnet.devices import Machine

VERSION = 1
ORDINARY_INVENTORY = "inventory.py"
ONLY_THE_API_KNOWS = "machines that the policy hides from this one, and whether one waits to be approved"
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


class Device(msgspec.Struct, frozen=True):
    """A machine of the tailnet. What is not known is null."""

    name: str
    dns_name: str
    address: str
    os: str
    online: bool | None
    last_seen: datetime | None
    key_expires: datetime | None
    expired: bool
    ssh: bool | None
    tags: tuple[str, ...]
    shared: bool
    this_machine: bool
    role: str | None
    """Its group in the inventory, null where it is not there."""
    obstacle: str | None
    """Why it cannot be a node as things are, and what to do."""
    add: str | None
    """What to type to add it to the inventory; null where it is there, or cannot be."""


class Listing(msgspec.Struct, frozen=True):
    """What `tailtrain devices --json` prints. `missing` are hosts of the inventory that no machine bears."""

    version: int
    asked_at: datetime
    admin_api: bool
    inventory: str | None
    devices: tuple[Device, ...]
    missing: tuple[str, ...]


def listing_of(
    machines: Sequence[Machine],
    roles: Mapping[str, str],
    missing: Sequence[str],
    *,
    now: datetime,
    admin_api: bool,
    inventory: str | None,
) -> Listing:
    """Put machines beside the inventory.

    Args:
        machines: in the order in which they are listed.
        roles: the group of each machine of the inventory, by its address.
        missing: hosts of the inventory that are no machine of the tailnet.
        now: the present, with a time zone.
        admin_api: whether it was asked.
        inventory: the inventory's file; None where there is none yet.
    """
    return Listing(
        version=VERSION,
        asked_at=now,
        admin_api=admin_api,
        inventory=inventory,
        devices=tuple(_device(machine, roles.get(machine.address), inventory) for machine in machines),
        missing=tuple(missing),
    )


def _device(machine: Machine, role: str | None, inventory: str | None) -> Device:
    why_not = obstacle(machine)
    add = None
    if inventory is not None and role is None and why_not is None:
        add = f"tailtrain add {shlex.quote(machine.name)} --write"
        if inventory != ORDINARY_INVENTORY:
            add += f" --inventory {shlex.quote(inventory)}"
    return Device(
        name=machine.name,
        dns_name=machine.dns_name,
        address=machine.address,
        os=machine.os,
        online=machine.online,
        last_seen=machine.last_seen,
        key_expires=machine.key_expiry,
        expired=machine.expired,
        ssh=machine.ssh,
        tags=machine.tags,
        shared=machine.external,
        this_machine=machine.is_self,
        role=role,
        obstacle=why_not,
        add=add,
    )


def render_listing(listing: Listing) -> str:
    """The listing as text: a table, and then what stands in the way of whom."""
    tagged = any(device.tags for device in listing.devices)
    head = ["Machine", "address", "system", "state", "key expires", "SSH", "inventory"]
    rows = [head + ["tags"] * tagged]
    for device in listing.devices:
        role = device.role or ("no (this one)" if device.this_machine else "no")
        row = [
            device.name,
            device.address,
            SYSTEM_NAMES.get(device.os, device.os or "unknown"),
            _state(device, listing.asked_at),
            _expiry(device, listing.asked_at),
            {True: "on", False: "off", None: "-"}[device.ssh],
            role,
        ]
        rows.append(row + [", ".join(device.tags)] * tagged)
    lines = [*table(rows, indent=0), *_sections(listing)]
    return "".join(f"{printable(line)}\n" for line in lines)


def _sections(listing: Listing) -> Iterator[str]:
    members = [device for device in listing.devices if device.role]
    others = [device for device in listing.devices if not device.role]
    sections = (
        (
            "In the inventory, but not to be reached as things are",
            [(d.name, d.obstacle) for d in members if d.obstacle],
        ),
        (
            "In the inventory, but no machine of the tailnet has that name",
            [
                (name, "join it: tailtrain invite; or take it out of the inventory")
                for name in listing.missing
            ],
        ),
        ("To add one that could train", [(d.name, d.add) for d in others if d.add]),
        ("Cannot train as things are", [(d.name, d.obstacle) for d in others if d.obstacle]),
    )
    for title, rows in sections:
        if rows:
            yield ""
            yield title
            yield from table([(name, str(words)) for name, words in rows])
    if listing.inventory is None:
        yield ""
        yield "There is no inventory yet. To write one from these machines: tailtrain init"
    if not listing.admin_api:
        yield ""
        yield from wrapped(f"Not known without Tailscale's admin API: {ONLY_THE_API_KNOWS}. {HOW_TO_SET}.")


def _state(device: Device, now: datetime) -> str:
    if device.online:
        return "online"
    if device.last_seen is None:
        return "unknown" if device.online is None else "offline"
    return f"offline {_span((now - device.last_seen).total_seconds())}"


def _expiry(device: Device, now: datetime) -> str:
    """The day, with the days left where they are few."""
    if device.expired:
        return "expired"
    if device.key_expires is None:
        return "never"
    day, left = f"{device.key_expires:%Y-%m-%d}", device.key_expires - now
    return f"{day} ({left.days} d)" if left < EXPIRY_NOTICE else day


def _span(seconds: float) -> str:
    for span, unit in _SPANS:
        if seconds >= span:
            return f"{seconds // span:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
