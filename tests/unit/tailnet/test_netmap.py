"""The netmap, read from status documents of a real tailscaled 1.102.5 and from changed copies of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import DaemonError, UnknownHostError
from tailtrain.tailnet.netmap import Netmap, parse_status

DATA = Path(__file__).with_name("data")


def document(name: str = "running") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return loaded


def peer(status: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [value for value in status["Peer"].values() if value["HostName"] == name]
    return dict(found)


def netmap(status: dict[str, Any]) -> Netmap:
    return parse_status(json.dumps(status))


def with_peers(**peers: dict[str, Any]) -> Netmap:
    status = document()
    status["Peer"] |= {f"nodekey:{name}": value for name, value in peers.items()}
    return netmap(status)


def test_a_running_tailnet() -> None:
    status = netmap(document())
    assert [one.name for one in status.peers] == [
        "architect",
        "ip-172-31-25-81",
        "judge",
        "netcup-router",
        "qfox",
        "racknerd-510bd9c",
    ]
    qfox = status.find("qfox")
    assert qfox.address == "100.64.0.2"
    assert qfox.addresses[1].startswith("fd7a:115c:a1e0:")
    assert qfox.path == "direct 10.99.0.11:41641"
    assert {key.split()[0] for key in qfox.host_keys} == {"ssh-rsa", "ecdsa-sha2-nistp256", "ssh-ed25519"}
    assert qfox.online
    assert not qfox.expired
    assert qfox.key_expiry is None
    assert qfox.last_seen is None
    assert status.has_device


@pytest.mark.parametrize(
    "name", ["qfox", "QFOX", "qfox.lab.ts.net", "qfox.lab.ts.net.", "Qfox.Lab.ts.net", "100.64.0.2"]
)
def test_a_host_is_found_by_name_full_name_and_address(name: str) -> None:
    assert netmap(document()).find(name).dns_name == "qfox.lab.ts.net"


def test_this_machine_is_found_and_is_local() -> None:
    me = netmap(document()).find("lab-control")
    assert me.is_self
    assert me.path == "local"


def test_an_unknown_host_is_told_with_near_names() -> None:
    with pytest.raises(UnknownHostError, match=r"^qfxo: no machine of the tailnet.*Did you mean qfox\?$"):
        netmap(document()).find("qfxo")
    with pytest.raises(UnknownHostError, match="See `tailscale status`"):
        netmap(document()).find("zzz")


def test_a_renamed_host_is_found_by_its_own_host_name() -> None:
    box = peer(document(), "qfox") | {"HostName": "Trainer", "DNSName": "trainer-1.lab.ts.net."}
    assert with_peers(box=box).find("trainer").name == "trainer-1"


def test_two_peers_with_one_name_are_both_told() -> None:
    """A machine shared from another tailnet keeps its name there."""
    shared = peer(document(), "qfox") | {
        "DNSName": "qfox.other.ts.net.",
        "TailscaleIPs": ["100.90.0.9"],
        "Online": False,
    }
    status = with_peers(shared=shared)
    with pytest.raises(UnknownHostError) as caught:
        status.find("qfox")
    assert "qfox.lab.ts.net at 100.64.0.2" in str(caught.value)
    assert "qfox.other.ts.net at 100.90.0.9, offline" in str(caught.value)
    assert "full DNS name or the address" in str(caught.value)
    assert status.find("qfox.other.ts.net").address == "100.90.0.9"
    assert status.find("100.64.0.2").dns_name == "qfox.lab.ts.net"


def test_a_machine_that_was_set_up_again_is_a_namesake_not_a_conflict() -> None:
    again = peer(document(), "qfox") | {"DNSName": "qfox-1.lab.ts.net.", "TailscaleIPs": ["100.64.0.99"]}
    status = with_peers(again=again)
    assert status.find("qfox").address == "100.64.0.2"
    assert [other.dns_name for other in status.namesakes(status.find("qfox"))] == ["qfox-1.lab.ts.net"]


@pytest.mark.parametrize(
    "fields",
    [
        {"ShareeNode": True},
        {"HostName": "funnel-ingress-node", "DNSName": ""},
        {"DNSName": "se-sto-wg-001.mullvad.ts.net."},
    ],
)
def test_what_cannot_be_a_host_is_left_out(fields: dict[str, Any]) -> None:
    other = peer(document(), "qfox") | {"TailscaleIPs": ["100.90.0.9"]} | fields
    assert with_peers(other=other).peers == netmap(document()).peers


def test_a_tailnet_without_dns_names_goes_by_host_names() -> None:
    status = document()
    for one in status["Peer"].values():
        one["DNSName"] = ""
    assert netmap(status).find("qfox").address == "100.64.0.2"


def test_a_host_with_only_ipv6() -> None:
    only = peer(document(), "qfox") | {
        "HostName": "six",
        "DNSName": "six.lab.ts.net.",
        "TailscaleIPs": ["fd7a::6"],
    }
    assert with_peers(only=only).find("six").address == "fd7a::6"


def test_ipv4_is_dialled_first() -> None:
    both = peer(document(), "qfox") | {
        "HostName": "both",
        "DNSName": "both.lab.ts.net.",
        "TailscaleIPs": ["fd7a::7", "100.64.0.70"],
    }
    assert with_peers(both=both).find("both").addresses == ("100.64.0.70", "fd7a::7")


def test_an_expired_key_and_tailscale_ssh_off_as_tailscaled_tells_them() -> None:
    status = netmap(document("expired_key_and_ssh_off"))
    expired = status.find("gamma")
    assert expired.expired
    assert expired.key_expiry == datetime(2026, 11, 30, 4, 20, 52, tzinfo=UTC)
    assert status.find("beta").host_keys == ()
    assert status.find("alpha").host_keys


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"CurAddr": "192.0.2.7:41641", "Relay": "fra"}, "direct 192.0.2.7:41641"),
        ({"CurAddr": "", "Relay": "fra", "Active": True}, "relayed via fra"),
        ({"CurAddr": "", "Relay": "fra", "Active": False}, "unknown"),
        (
            {"CurAddr": "", "Relay": "fra", "PeerRelay": "192.0.2.9:7777:vni:4"},
            "relayed via peer 192.0.2.9:7777:vni:4",
        ),
    ],
)
def test_the_path_to_a_host(fields: dict[str, Any], path: str) -> None:
    box = peer(document(), "qfox") | {"HostName": "box", "DNSName": "box.lab.ts.net."} | fields
    assert with_peers(box=box).find("box").path == path


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (document("needs_login"), "not logged in to a tailnet.*Run: sudo tailscale up$"),
        (
            document("needs_login") | {"AuthURL": "https://login.example/a/1"},
            "open https://login.example/a/1$",
        ),
        (document("stopped"), "Tailscale is stopped on this machine.*Run: sudo tailscale up$"),
        (document("needs_login") | {"BackendState": "NeedsMachineAuth"}, "waits to be approved"),
        (document("needs_login") | {"BackendState": "Starting"}, "still starting"),
        (document("needs_login") | {"BackendState": "NoState"}, "no state yet"),
        (document("needs_login") | {"BackendState": "SomethingNew"}, "found SomethingNew, expected Running"),
        ({}, "found nothing, expected Running"),
        ({"BackendState": "Running"}, "does not know its own machine yet"),
    ],
)
def test_a_daemon_that_is_not_connected_says_what_to_run(status: dict[str, Any], expected: str) -> None:
    with pytest.raises(DaemonError, match=expected):
        netmap(status)


def test_this_machines_own_expired_key() -> None:
    status = document()
    status["Self"] |= {"Expired": True, "KeyExpiry": "2026-11-02T10:00:00Z"}
    with pytest.raises(DaemonError, match=r"own Tailscale key expired on 2026-11-02.*--force-reauth$"):
        netmap(status)


def test_userspace_networking_is_seen() -> None:
    assert netmap(document() | {"TUN": False}).has_device is False


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", '{"BackendState": 7}', '{"Peer": {"a": {"TailscaleIPs": 3}}}']
)
def test_what_is_no_status_is_refused(text: str) -> None:
    with pytest.raises(DaemonError, match="status cannot be read"):
        parse_status(text)


@given(
    st.dictionaries(
        st.sampled_from(
            ["TailscaleIPs", "Tags", "KeyExpiry", "LastSeen", "DNSName", "Online", "sshHostKeys", "Relay"]
        ),
        st.none(),
    ),
    st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8)),
)
def test_missing_and_unknown_fields_do_no_harm(missing: dict[str, None], unknown: dict[str, Any]) -> None:
    status = document()
    one = peer(status, "qfox")
    known = set(one)
    for field in missing:
        one.pop(field, None)
    one |= {
        key: value for key, value in unknown.items() if key not in known | {"KeyExpiry", "Expired", "Tags"}
    }
    one["HostName"] = "odd"
    status["Peer"] = {"nodekey:odd": one}
    assert len(netmap(status).peers) == 1
