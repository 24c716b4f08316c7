"""The connector inside pyinfra, against SSH servers on loopback: logging in, and being refused."""

from __future__ import annotations

import importlib.metadata
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import pytest
from paramiko import ECDSAKey
from pyinfra.api import Inventory

from tailtrain.tailnet import session
from tailtrain.tailnet.daemon import current_netmap, forget_netmap
from tests.unit.tailnet.tailnet_stand_in import Behaviour

if TYPE_CHECKING:
    from tests.unit.tailnet.tailnet_stand_in import Tailnet

pytestmark = pytest.mark.patched


def test_hosts_are_known_by_their_plain_name(tailnet: Tailnet) -> None:
    tailnet.add("qfox")
    tailnet.add("architect")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/architect")
    assert deployment.connected == {"qfox", "architect"}
    assert deployment.run("qfox", "echo $((6 * 7)); echo careful >&2") == (True, "42", "careful")
    assert deployment.run("qfox", "exit 3")[0] is False
    assert deployment.run("qfox", "exit 3", _success_exit_codes=[3])[0] is True


def test_limit_takes_the_plain_name(tailnet: Tailnet, tmp_path: Path) -> None:
    """Real pyinfra, as a person runs it; plain sshd hosts, as tailscaled's port needs root here."""
    for name in ("qfox", "architect"):
        tailnet.add(name, pinned=False, behaviour=Behaviour(accept_none=True))
    inventory = tmp_path / "inventory.py"
    inventory.write_text(
        f"compute = [('@tailscale/qfox', {{'ssh_port': {tailnet.port}}}),"
        f" ('@tailscale/architect', {{'ssh_port': {tailnet.port}}})]\n"
    )
    result = subprocess.run(
        [
            Path(sys.executable).with_name("pyinfra"),
            "-y",
            inventory,
            "--limit",
            "qfox",
            "exec",
            "--",
            "echo hello-from-host",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"\[qfox\]\s+Connected", result.stderr)
    assert "hello-from-host" in result.stderr + result.stdout
    assert tailnet.servers["architect"].connections == 0


def test_names_are_made_without_asking_the_daemon(tailnet: Tailnet) -> None:
    tailnet.status_file.unlink()
    inventory = Inventory((["@tailscale/qfox", "@tailscale/Lost.tail1234.ts.net."], {}))
    assert list(inventory.hosts) == ["qfox", "Lost.tail1234.ts.net"]


def test_installed_packages_are_not_searched_again_for_every_host(
    tailnet: Tailnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = []
    search = importlib.metadata.entry_points

    def counting(**selection: str) -> Any:
        searches.append(selection)
        return search(**selection)

    monkeypatch.setattr("pyinfra.api.connectors.entry_points", counting)
    Inventory(([f"@tailscale/host{number}" for number in range(50)], {}))
    assert len(searches) < 5


def test_tailscale_alone_stands_for_all_machines_with_their_tags_as_groups(tailnet: Tailnet) -> None:
    tailnet.add_peer("qfox", Tags=["tag:gpu-box"])
    tailnet.add_peer("architect", Online=False)
    tailnet.add_peer("pixel", OS="android")
    inventory = Inventory((["@tailscale"], {}))
    assert set(inventory.hosts) == {"qfox", "architect"}
    assert [host.name for host in inventory.get_group("gpu_box")] == ["qfox"]


def test_tailscaled_is_offered_nothing_but_none(tailnet: Tailnet) -> None:
    """Further offers make its SSH library end the connection, and a missing key file must not matter."""
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", ssh_user="deploy", ssh_key="/nonexistent/key")
    assert deployment.connected == {"qfox"}
    assert server.behaviour.users == ["deploy none"]


def test_the_user_of_ssh_config_counts(tailnet: Tailnet, tmp_path: Path) -> None:
    server = tailnet.add("qfox")
    config = tmp_path / "config"
    config.write_text("Host qfox\n  User deploy\n  ProxyCommand /bin/false\n")
    assert tailnet.deploy("@tailscale/qfox", ssh_config_file=str(config)).connected == {"qfox"}
    assert server.behaviour.users == ["deploy none"]


def test_full_names_and_addresses_work(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    tailnet.add("architect")
    deployment = tailnet.deploy("@tailscale/Architect.Tail1234.ts.net", f"@tailscale/{server.address}")
    assert deployment.connected == {"Architect.Tail1234.ts.net", server.address}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_host_with_only_ipv6_is_reached(tailnet: Tailnet) -> None:
    tailnet.add("qfox", address="::1")
    deployment = tailnet.deploy("@tailscale/qfox")
    assert deployment.run("qfox", "echo six") == (True, "six", "")


def test_only_the_host_that_fails_is_dropped(tailnet: Tailnet) -> None:
    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/qfxo")
    assert deployment.connected == {"qfox"}
    assert deployment.errors["qfxo"].endswith("Did you mean qfox?")


def test_a_host_that_joined_meanwhile_is_found(tailnet: Tailnet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_STALE_SECONDS", 0)
    current_netmap()
    tailnet.add("qfox")
    assert tailnet.deploy("@tailscale/qfox").connected == {"qfox"}


def test_without_a_daemon_one_host_says_so_for_all(tailnet: Tailnet) -> None:
    names = [f"node{number}" for number in range(5)]
    for name in names:
        tailnet.add(name)
    tailnet.write(BackendState="Stopped")
    deployment = tailnet.deploy(*(f"@tailscale/{name}" for name in names))
    said = list(deployment.errors.values())
    assert "Run: sudo tailscale up" in said[0]
    assert said[1:] == ["not asked, for the reason said above"] * 4
    # A plan still knows why, for each of them.
    for name in names:
        assert "Run: sudo tailscale up" in deployment.host(name).connector_data["unreachable"]


def test_a_policy_denial_is_told_in_the_servers_words(tailnet: Tailnet) -> None:
    denial = 'tailscale: tailnet policy does not permit you to SSH as user "root"\r\n'
    tailnet.add("qfox", behaviour=Behaviour(banner=denial, deny=True))
    tailnet.add("architect")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/architect", ssh_user="root")
    assert deployment.connected == {"architect"}
    message = deployment.errors["qfox"]
    assert message.startswith("the tailnet's policy does not permit to log in as root")
    assert denial.strip() in message


def test_a_check_shows_its_address_at_once_and_is_waited_for(
    tailnet: Tailnet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "LOGIN_TIMEOUT_SECONDS", 0.5)
    banner = (
        "# Tailscale SSH requires an additional check.\n# To authenticate, visit: https://login.example/a/1\n"
    )
    tailnet.add("qfox", behaviour=Behaviour(banner=banner, banner_hold_seconds=1.5))
    started = time.time()
    deployment = tailnet.deploy("@tailscale/qfox")
    assert deployment.connected == {"qfox"}
    assert deployment.seconds > 1.4
    (shown,) = [record for record in caplog.records if "login.example" in record.getMessage()]
    assert shown.created - started < 0.5
    assert (
        "requires an additional check. To authenticate, visit: https://login.example/a/1"
        in shown.getMessage()
    )


def test_a_check_that_nobody_makes_ends(tailnet: Tailnet) -> None:
    banner = "# To authenticate, visit: https://login.example/a/1\n"
    tailnet.add("qfox", behaviour=Behaviour(banner=banner, banner_hold_seconds=20))
    deployment = tailnet.deploy("@tailscale/qfox", tailscale_check_timeout=1)
    assert "not done within 1 s" in deployment.errors["qfox"]
    assert "https://login.example/a/1" in deployment.errors["qfox"]
    assert deployment.seconds < 4


def test_a_server_that_never_answers_the_login_ends(
    tailnet: Tailnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LOGIN_TIMEOUT_SECONDS", 0.5)
    tailnet.add("qfox", behaviour=Behaviour(banner_hold_seconds=20))
    deployment = tailnet.deploy("@tailscale/qfox")
    assert "did not answer the login within 0.5 s" in deployment.errors["qfox"]
    assert deployment.seconds < 3


def test_a_changed_host_key_is_not_accepted(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    server.key = ECDSAKey.generate()
    message = tailnet.deploy("@tailscale/qfox").errors["qfox"]
    assert "does not have the host key that the tailnet names" in message
    assert server.key.fingerprint in message
    assert server.behaviour.users == []


def test_a_host_key_that_the_tailnet_renewed_meanwhile_is_accepted(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    current_netmap()
    server.key = ECDSAKey.generate()
    tailnet.add_peer(
        "qfox", address=server.address, sshHostKeys=[f"{server.key.get_name()} {server.key.get_base64()}"]
    )
    assert tailnet.deploy("@tailscale/qfox").connected == {"qfox"}


def test_a_plain_sshd_gets_keys_and_known_hosts(tailnet: Tailnet, tmp_path: Path) -> None:
    key = ECDSAKey.generate()
    key.write_private_key_file(str(tmp_path / "key"))
    behaviour = Behaviour(accept_none=False, accepted_key=key)
    server = tailnet.add("qfox", pinned=False, behaviour=behaviour)
    data: dict[str, Any] = {"ssh_user": "deploy", "ssh_key": str(tmp_path / "key")}
    (tmp_path / ".ssh").mkdir()
    assert tailnet.deploy("@tailscale/qfox", **data).connected == {"qfox"}
    assert server.behaviour.users == ["deploy none", "deploy publickey"]
    assert f"[qfox]:{tailnet.port}" in (tmp_path / ".ssh" / "known_hosts").read_text()


def test_a_plain_sshd_with_another_key_than_in_known_hosts_is_refused(
    tailnet: Tailnet, tmp_path: Path
) -> None:
    server = tailnet.add("qfox", pinned=False)
    other = ECDSAKey.generate()
    known_hosts = tmp_path / "known"
    known_hosts.write_text(f"[qfox]:{tailnet.port} {other.get_name()} {other.get_base64()}\n")
    message = tailnet.deploy("@tailscale/qfox", ssh_known_hosts_file=str(known_hosts)).errors["qfox"]
    assert "not the one in known_hosts" in message
    assert f"ssh-keygen -R '[qfox]:{tailnet.port}'" in message
    assert server.behaviour.users == []


def test_strict_checking_refuses_a_plain_sshd_that_is_not_known(tailnet: Tailnet) -> None:
    tailnet.add("qfox", pinned=False)
    message = tailnet.deploy(
        "@tailscale/qfox", ssh_strict_host_key_checking="yes", ssh_known_hosts_file=os.devnull
    ).errors["qfox"]
    assert "not in known_hosts, and strict checking is on" in message


def test_a_plain_sshd_that_wants_a_key_we_lack_says_so(tailnet: Tailnet, tmp_path: Path) -> None:
    tailnet.add("qfox", pinned=False, behaviour=Behaviour(accept_none=False))
    known_hosts = str(tmp_path / "known")
    message = tailnet.deploy("@tailscale/qfox", ssh_user="deploy", ssh_known_hosts_file=known_hosts).errors[
        "qfox"
    ]
    assert message.startswith("the SSH server refused the login as deploy")
    assert "it accepts publickey" in message
    assert "sudo tailscale set --ssh" in message


def test_a_missing_key_file_fails_only_its_host(tailnet: Tailnet) -> None:
    tailnet.add("architect")
    tailnet.add("qfox", pinned=False)
    deployment = tailnet.deploy(("@tailscale/qfox", {"ssh_key": "/nonexistent/key"}), "@tailscale/architect")
    assert deployment.connected == {"architect"}
    assert "/nonexistent/key" in deployment.errors["qfox"]


def test_nothing_on_the_port_and_no_host_keys_means_that_tailscale_ssh_is_off(tailnet: Tailnet) -> None:
    tailnet.add_peer("qfox")
    deployment = tailnet.deploy("@tailscale/qfox")
    assert "Tailscale SSH is off there" in deployment.errors["qfox"]
    assert "sudo tailscale set --ssh" in deployment.errors["qfox"]
    assert deployment.seconds < 2


def test_a_refused_connection_is_tried_again(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    server.stop()
    gevent.spawn_later(0.4, server.start)
    assert tailnet.deploy("@tailscale/qfox", ssh_connect_retries=8).connected == {"qfox"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"Online": False, "LastSeen": "2026-11-27T08:30:00Z"},
            "the host is offline, last seen 2026-11-27 08:30 UTC",
        ),
        ({"CurAddr": "192.0.2.7:41641"}, "found path direct 192.0.2.7:41641"),
    ],
)
def test_a_dead_host_costs_no_more_than_the_time_out(
    tailnet: Tailnet, fields: dict[str, Any], expected: str
) -> None:
    address = tailnet.add_peer("qfox", **fields)
    tailnet.add("architect")
    # A listener whose queue is full drops what comes after, as the path to a dead host does.
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind((address, tailnet.port))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex((address, tailnet.port))
        deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/architect", timeout=1)
    assert deployment.connected == {"architect"}
    assert f"no answer from {address} port {tailnet.port} within 1 s" in deployment.errors["qfox"]
    assert expected in deployment.errors["qfox"]
    assert deployment.seconds < 1.5


def test_a_server_that_accepts_and_says_nothing_costs_no_more_than_the_time_out(tailnet: Tailnet) -> None:
    tailnet.add_mute("qfox", sshHostKeys=["ssh-ed25519 AAAA"])
    deployment = tailnet.deploy("@tailscale/qfox", timeout=1)
    assert "no answer" in deployment.errors["qfox"]
    assert deployment.seconds < 2.5


def test_fifty_hosts_connect_at_once_and_ask_the_daemon_once(
    tailnet: Tailnet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"node{number}" for number in range(50)]
    for name in names:
        tailnet.add(name)
    # A daemon that answers slowly, and writes down that it was asked.
    command = tmp_path / "bin" / "tailscale"
    command.parent.mkdir()
    asked = tmp_path / "asked"
    command.write_text(f"#!/bin/sh\necho asked >> {asked}\nsleep 0.3\ncat {tailnet.status_file}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("TAILTRAIN_STATUS_JSON")
    monkeypatch.setattr("tailtrain.tailnet.daemon.SOCKET", str(tmp_path / "tailscaled.sock"))
    deployment = tailnet.deploy(*[f"@tailscale/{name}" for name in names], timeout=20)
    assert deployment.connected == set(names)
    assert asked.read_text().splitlines() == ["asked"]

    # As quickly when it fails: nobody waits again for an answer that did not come.
    command.write_text(f"#!/bin/sh\necho asked >> {asked}\nsleep 0.3\nexit 1\n")
    forget_netmap()
    deployment = tailnet.deploy(*[f"@tailscale/{name}" for name in names], timeout=20)
    assert set(deployment.errors) == set(names)
    assert asked.read_text().splitlines() == ["asked", "asked"]
