"""Machines of the tailnet, from the daemon and from the admin API, against the inventory."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tailscale.models import Device

from tailtrain.tailnet.devices import Machine, impossible, machines_of, obstacle
from tailtrain.tailnet.listing import Listing, listing_of, render_listing
from tailtrain.tailnet.netmap import Netmap, parse_status
from tests.unit.tailnet.admin_documents import device

DATA = Path(__file__).with_name("data")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def netmap(**changes: dict[str, Any]) -> Netmap:
    """The tailnet of a real daemon, with changed machines."""
    status = json.loads((DATA / "running.json").read_text())
    for machine in (status["Self"], *status["Peer"].values()):
        machine.update(changes.pop(machine["HostName"].replace("-", "_"), {}))
    assert not changes
    return parse_status(json.dumps(status))


def devices(*documents: dict[str, Any]) -> tuple[Device, ...]:
    return tuple(Device.from_dict(document) for document in documents)


def machine(seen: Netmap, name: str, *known: dict[str, Any]) -> Machine:
    (found,) = [one for one in machines_of(seen, devices(*known), now=NOW) if one.name == name]
    return found


def listing(seen: Netmap, *known: dict[str, Any], **given: Any) -> Listing:
    arguments: dict[str, Any] = {"admin_api": bool(known), "inventory": "inventory.py", **given}
    machines = machines_of(seen, devices(*known), now=NOW)
    roles = arguments.pop("roles", {"100.64.0.2": "primary", "100.64.0.3": "compute"})
    return listing_of(machines, roles, arguments.pop("missing", ()), now=NOW, **arguments)


def test_the_daemon_alone_knows_this_machine_and_those_that_it_sees() -> None:
    machines = machines_of(netmap(), now=NOW)
    assert [one.name for one in machines] == [
        "lab-control",
        "architect",
        "ip-172-31-25-81",
        "judge",
        "netcup-router",
        "qfox",
        "racknerd-510bd9c",
    ]
    assert machines[0].is_self
    assert machines[0].ssh is None
    assert all(one.ssh and one.visible and obstacle(one) is None for one in machines[1:])


def test_the_api_knows_machines_that_this_one_does_not_see() -> None:
    hidden = device("spare", "100.64.0.99", tags=["tag:train"], lastSeen="2026-11-30T09:30:00Z")
    found = machine(netmap(), "spare", hidden)
    assert (found.address, found.visible, found.tags) == ("100.64.0.99", False, ("train",))
    assert obstacle(found) == "the tailnet's policy hides it from this machine; see: tailtrain policy"


def test_the_api_knows_more_of_machines_that_are_seen() -> None:
    own = device("lab-control", "100.64.0.1", sshEnabled=True, expires="2027-01-01T00:00:00Z")
    waiting = device("judge", "100.64.0.4", authorized=False)
    shared = device("architect", "100.64.0.3", isExternal=True, keyExpiryDisabled=True)
    seen = netmap()
    assert machine(seen, "lab-control", own).ssh is True
    assert machine(seen, "lab-control", own).key_expiry == datetime(2027, 1, 1, tzinfo=UTC)
    assert obstacle(machine(seen, "judge", waiting)) == (
        "waits to be approved in the admin console, under Machines"
    )
    assert machine(seen, "architect", shared).external
    assert machine(seen, "architect", shared).key_expiry is None


def test_one_machine_is_listed_once_whatever_it_is_called() -> None:
    renamed = device("another-name", "100.64.0.2")
    assert len(machines_of(netmap(), devices(renamed), now=NOW)) == 7


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"os": "macOS"}, "macOS: nodes are Linux"),
        ({"os": "windows"}, "Windows: nodes are Linux"),
        ({"expires": "2026-11-01T00:00:00Z"}, "its key expired on 2026-11-01; run there: sudo tailscale up"),
        ({"expires": "0001-01-01T00:00:00Z"}, "the tailnet's policy hides it"),
        ({"expires": "2026-11-01T00:00:00Z", "keyExpiryDisabled": True}, "the tailnet's policy hides it"),
    ],
)
def test_why_a_machine_that_only_the_api_knows_cannot_train(changed: dict[str, Any], words: str) -> None:
    found = machine(netmap(), "spare", device("spare", "100.64.0.99", **changed))
    assert (impossible(found) or "").startswith(words)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"OS": "android"}, "Android: nodes are Linux with systemd"),
        ({"Expired": True, "KeyExpiry": "2026-11-02T00:00:00Z"}, "its key expired on 2026-11-02"),
        ({"Online": False, "LastSeen": "2026-11-29T08:05:00Z"}, "offline since 2026-11-29 08:05 UTC"),
        ({"sshHostKeys": None}, "Tailscale SSH is off; run there: sudo tailscale set --ssh"),
    ],
)
def test_why_a_machine_that_is_seen_cannot_train(changed: dict[str, Any], words: str) -> None:
    found = machine(netmap(judge=changed), "judge")
    assert (obstacle(found) or "").startswith(words)


def test_who_is_offline_or_without_tailscale_ssh_is_asked_all_the_same() -> None:
    """The tailnet's opinion can be wrong, and a host may have an SSH server of its own."""
    for changed in ({"Online": False}, {"sshHostKeys": None}):
        assert impossible(machine(netmap(judge=changed), "judge")) is None


def test_the_table_and_what_stands_below_it() -> None:
    seen = netmap(
        judge={"Online": False, "LastSeen": "2026-11-28T11:00:00Z"},
        qfox={"Expired": True, "KeyExpiry": "2026-11-02T00:00:00Z"},
        architect={"KeyExpiry": "2026-12-03T13:00:00Z", "Tags": ["tag:train", "tag:gpu"]},
        netcup_router={"OS": "macOS"},
    )
    text = render_listing(listing(seen, missing=("oldbox",)))
    lines = text.splitlines()
    assert lines[0].split() == [
        "Machine",
        "address",
        "system",
        "state",
        "key",
        "expires",
        "SSH",
        "inventory",
        "tags",
    ]
    rows = {line.split()[0]: line for line in lines[1:8]}
    assert "no (this one)" in rows["lab-control"]
    assert "2026-12-03 (3 d)" in rows["architect"]
    assert rows["architect"].endswith("compute        train, gpu")
    assert "offline 2 d" in rows["judge"]
    assert "expired" in rows["qfox"]
    sections = text.split("\n\n")
    assert "qfox  its key expired on 2026-11-02" in sections[1]
    assert "oldbox  join it: tailtrain invite" in sections[2]
    assert "tailtrain add racknerd-510bd9c --write" in sections[3]
    assert "netcup-router  macOS: nodes are Linux" in sections[4]
    assert "TAILSCALE_API_KEY" in sections[5]
    assert max(map(len, sections[5].splitlines())) <= 80


def test_what_a_machine_calls_itself_cannot_obey_a_terminal() -> None:
    seen = netmap(judge={"OS": "lin\x1b[2Jux"})
    assert "\x1b" not in render_listing(listing(seen))


def test_the_same_as_json() -> None:
    found = listing(netmap(), device("judge", "100.64.0.4"), inventory="fleets/big one.py")
    document = json.loads(msgspec.json.encode(found))
    assert document["version"] == 1
    assert document["admin_api"] is True
    judge = next(one for one in document["devices"] if one["name"] == "judge")
    assert judge["add"] == "tailtrain add judge --write --inventory 'fleets/big one.py'"
    assert judge["role"] is None
    assert judge["key_expires"] == "2030-01-01T00:00:00Z"
    assert msgspec.json.decode(msgspec.json.encode(found), type=Listing) == found


def test_without_an_inventory_there_is_one_to_be_written() -> None:
    text = render_listing(listing(netmap(), roles={}, inventory=None))
    assert "tailtrain init" in text
    assert "tailtrain add" not in text


@pytest.mark.parametrize(
    ("ago", "words"),
    [(timedelta(seconds=40), "40 s"), (timedelta(minutes=5), "5 min"), (timedelta(hours=30), "1 d")],
)
def test_how_long_ago(ago: timedelta, words: str) -> None:
    seen = netmap(judge={"Online": False, "LastSeen": (NOW - ago).isoformat()})
    assert f"offline {words}" in render_listing(listing(seen))
