"""What is said about hosts before anything is connected."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tailtrain.errors import AccessError, UnknownHostError
from tailtrain.tailnet.netmap import Netmap, parse_status
from tailtrain.tailnet.preflight import HostPreflight, check_hosts

DATA = Path(__file__).with_name("data")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def running(**qfox: Any) -> Netmap:
    status = json.loads((DATA / "running.json").read_text())
    for peer in status["Peer"].values():
        if peer["HostName"] == "qfox":
            peer.update(qfox)
    return parse_status(json.dumps(status))


def check(netmap: Netmap, name: str) -> HostPreflight:
    (found,) = check_hosts(netmap, [name], now=NOW)
    return found


def test_a_host_without_trouble() -> None:
    found = check(running(), "qfox")
    assert found.problem is None
    assert found.warnings == ()
    assert (found.address, found.path, found.online) == ("100.64.0.2", "direct 10.99.0.11:41641", True)


def test_hosts_come_in_the_order_asked_for() -> None:
    found = check_hosts(running(), ["qfox", "nobody", "architect"], now=NOW)
    assert [host.name for host in found] == ["qfox", "nobody", "architect"]
    assert isinstance(found[1].problem, UnknownHostError)


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"Online": False, "LastSeen": "2026-11-27T08:30:00Z"}, "offline since 2026-11-27 08:30 UTC"),
        ({"CurAddr": "", "Relay": "fra", "Active": True}, "relayed via fra: transfers are slow"),
        ({"KeyExpiry": "2026-12-05T12:00:00Z"}, "its Tailscale key expires on 2026-12-05, in 5 days"),
        ({"sshHostKeys": None}, "Tailscale SSH is off there"),
    ],
)
def test_what_stands_out_is_a_warning(fields: dict[str, Any], warning: str) -> None:
    found = check(running(**fields), "qfox")
    assert found.problem is None
    (said,) = found.warnings
    assert warning in said


def test_a_key_that_lasts_is_not_mentioned() -> None:
    assert check(running(KeyExpiry="2027-03-05T12:00:00Z"), "qfox").warnings == ()


def test_an_expired_key_is_a_problem() -> None:
    netmap = parse_status((DATA / "expired_key_and_ssh_off.json").read_text())
    found = check(netmap, "gamma")
    assert isinstance(found.problem, AccessError)
    assert "expired on 2026-11-30" in str(found.problem)


def test_this_machine_is_local() -> None:
    found = check(running(), "lab-control")
    assert found.is_self
    assert found.path == "local"
    assert found.warnings == ()
