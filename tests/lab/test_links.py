"""Links that are worse than they were: relayed by the tailnet, narrow, several of that at once."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.lab.conftest import eventually

if TYPE_CHECKING:
    from lab.lab import Host, Lab
    from tests.lab.conftest import SpareLab

pytestmark = pytest.mark.lab

MEGABYTES = 5
# On a host: takes one connection and sends so many bytes into it, or reads it to its end and says so.
SERVE = """
import socket, sys
server = socket.create_server(("", 4567))
print("ready", flush=True)
connection, _ = server.accept()
if sys.argv[1] == "from":
    connection.sendall(bytes(int(sys.argv[2])))
else:
    while connection.recv(1 << 16):
        pass
    connection.sendall(b"all")
"""
# On the control side: prints the seconds that the other end of it takes.
MEASURE = """
import socket, sys, time
connection = socket.create_connection((sys.argv[3], 4567), 10)
began = time.perf_counter()
if sys.argv[1] == "to":
    connection.sendall(bytes(int(sys.argv[2])))
    connection.shutdown(socket.SHUT_WR)
while connection.recv(1 << 16):
    pass
print(time.perf_counter() - began)
"""


def mbit(lab: Lab, host: Host, direction: str) -> float:
    """The rate at which data gets from or to a host, past the tailnet, in Mbit/s."""
    words = [direction, str(MEGABYTES * 1_000_000)]
    address = str(lab.settings.bridge_address(host.state.index))
    serving = host.command(["python3", "-c", SERVE, *words])
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        took = float(lab.on_control(["python3", "-c", MEASURE, *words, address]).stdout)
    return MEGABYTES * 8 / took


@pytest.fixture
def beta(spare_lab: SpareLab) -> Host:
    found = spare_lab.host("beta")
    found.set_cpu_quota(None)
    return found


@pytest.mark.parametrize("place", [["beta"], []], ids=["a host", "the control side"])
def test_a_narrow_link_carries_its_rate_in_each_direction_until_it_is_restored(
    place: list[str], spare_lab: SpareLab, beta: Host
) -> None:
    spare_lab.cli("fault", "slow", *place, "--mbit", "40")
    # Of a frame of 1514 bytes, 1448 are data.
    for direction in ("to", "from"):
        assert 40 * 0.85 < mbit(spare_lab, beta, direction) < 40
    assert "40 Mbit/s" in spare_lab.cli("status").stdout
    spare_lab.cli("fault", "restore", *place)
    for direction in ("to", "from"):
        assert mbit(spare_lab, beta, direction) > 80
    assert "Mbit/s" not in spare_lab.cli("status").stdout


def test_a_link_can_be_slow_and_narrow_at_once(spare_lab: SpareLab, beta: Host) -> None:
    spare_lab.cli("fault", "slow", "beta", "--ms", "5", "--mbit", "40")
    for direction in ("to", "from"):
        assert 40 * 0.7 < mbit(spare_lab, beta, direction) < 40
    assert "5 ms each way, 40 Mbit/s" in spare_lab.cli("status").stdout
    spare_lab.make()
    assert "each way" not in spare_lab.cli("status").stdout, "`lab up` mends it"
    assert mbit(spare_lab, beta, "to") > 80


def relays(status: str) -> dict[str, tuple[str, str]]:
    """The relay that is in use for a peer, and the direct address: one of both is empty."""
    peers = json.loads(status)["Peer"].values()
    return {peer["HostName"]: (peer["Relay"], peer["CurAddr"]) for peer in peers}


def test_a_pair_of_hosts_is_relayed_until_it_is_restored(spare_lab: SpareLab, beta: Host) -> None:
    alpha = spare_lab.host("alpha")
    # The first words of two hosts go through the relay, until they have found each other.
    assert eventually(lambda: alpha.way_to(beta) == beta.way_to(alpha) == "direct")
    spare_lab.cli("fault", "relayed", "beta", "--from", "alpha")
    assert alpha.way_to(beta) == beta.way_to(alpha) == "relay"
    for host, other in ((alpha, "beta"), (beta, "alpha")):
        assert relays(host.run("tailscale", "status", "--json").stdout)[other] == ("test", "")
    said = spare_lab.on_control(["tailscale", "ping", "-c", "20", "--until-direct", beta.address]).stdout
    assert "DERP" not in said.splitlines()[-1], "everybody else is as before"
    assert "relayed from alpha" in spare_lab.cli("status").stdout
    spare_lab.cli("fault", "restore", "beta")
    ping = ("tailscale", "ping", "-c", "20", "--until-direct", alpha.address)
    assert "DERP" not in beta.run(*ping).stdout.splitlines()[-1]
    assert beta.link.faults == ()


def test_a_host_is_relayed_from_everybody(spare_lab: SpareLab, beta: Host) -> None:
    beta.relay()
    assert spare_lab.host("alpha").way_to(beta) == "relay"
    status = spare_lab.on_control(["tailscale", "status", "--json"]).stdout
    assert relays(status)["beta"] == ("test", "")
    spare_lab.cli("fault", "cut", "beta")
    assert beta.link.faults == ("cut off",), "the one takes the place of the other"
    assert beta.way_to(spare_lab.host("alpha")) is None


def test_a_fault_of_nobody_is_refused(spare_lab: SpareLab) -> None:
    assert "no such host" in spare_lab.cli("fault", "relayed", "beta", "--from", "gamma", check=False).stderr
    assert "--mbit" in spare_lab.cli("fault", "slow", "beta", check=False).stderr
