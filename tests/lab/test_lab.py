"""The lab itself: that it is what it says, repairs itself, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import cgroups, network
from lab.settings import CONTROL, SWITCH, Settings
from tests.lab.conftest import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.lab import Lab
    from lab.state import Process
    from tests.lab.conftest import SpareLab

pytestmark = pytest.mark.lab


def reachable(lab: Lab, address: str, *, port: int = 22) -> bool:
    """Whether the control side can connect to a port of a host."""
    script = f"import socket; socket.create_connection(({address!r}, {port}), timeout=2).close()"
    return lab.on_control(["python3", "-c", script], check=False).returncode == 0


def ssh(lab: Lab, user: str, address: str, command: str) -> subprocess.CompletedProcess[str]:
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    return lab.on_control(["ssh", *options, f"{user}@{address}", command], check=False)


def processes(lab: Lab) -> dict[str, Process | None]:
    """What would change if anything was started anew."""
    now = lab.state
    return {CONTROL: now.control, SWITCH: now.server} | {name: host.init for name, host in now.hosts.items()}


def traces(settings: Settings) -> list[str]:
    """Whatever of a lab is on the machine."""
    found = [f"namespace {place}" for place in network.present(settings)]
    found += [f"process {pid}" for pid in cgroups.processes(settings.cgroup)]
    found += [
        str(root / settings.cgroup)
        for root in cgroups.hierarchies().roots
        if (root / settings.cgroup).exists()
    ]
    found += [
        line
        for line in Path("/proc/self/mounts").read_text().splitlines()
        if str(settings.state) in line or settings.netns("") in line
    ]
    found += [str(path) for path in (settings.state, settings.lock_file) if path.exists()]
    return found


# What a lab is


def test_every_host_of_the_inventory_is_a_node_of_the_tailnet(lab: Lab) -> None:
    status = json.loads(lab.on_control(["tailscale", "status", "--json"]).stdout)
    peers = {peer["HostName"]: peer for peer in status["Peer"].values()}
    assert set(peers) == set(lab.state.hosts)
    for name, peer in peers.items():
        assert peer["Online"], name
        assert peer["TailscaleIPs"][0] == lab.host(name).address
        assert peer["sshHostKeys"], name


def test_root_and_a_login_user_with_sudo_are_let_in(lab: Lab) -> None:
    address = lab.host("architect").address
    assert ssh(lab, "root", address, "id -un; hostname").stdout.split() == ["root", "architect"]
    assert ssh(lab, "deploy", address, "id -un; sudo -n id -un").stdout.split() == ["deploy", "root"]


def test_a_host_has_the_worker_environment_and_sees_the_wheels(lab: Lab) -> None:
    judge = lab.host("judge")
    environment = lab.state.environment
    assert judge.run("test", "-f", f"{environment}/.complete", check=False).returncode == 0
    assert judge.run("sh", "-c", "ls /mnt/wheels/torch-*.whl").stdout
    assert judge.run("touch", "/mnt/wheels/x", check=False).returncode != 0


def test_a_host_says_what_it_emulates(lab: Lab) -> None:
    qfox = lab.host("qfox")
    marker = json.loads(qfox.run("cat", "/etc/tailtrain-lab.json").stdout)
    assert (marker["cores"], marker["ram_gb"], marker["gpu"], marker["storage_gb"]) == (16, 32, True, 800)
    assert marker["cpu_quota_cores"] == pytest.approx(qfox.cpu_quota, abs=0.001)


def test_a_host_has_no_way_out(lab: Lab) -> None:
    routes = lab.host("qfox").run("ip", "route", "show", "table", "all").stdout
    assert "default" not in routes
    assert "eth0" in routes


def test_systemd_is_content_on_every_host(lab: Lab) -> None:
    for name in lab.state.hosts:
        failed = lab.host(name).run("systemctl", "--failed", "--no-legend", "--plain").stdout
        assert not failed.strip(), f"{name}: {failed}"


def test_a_command_on_the_control_side_keeps_directory_exit_code_and_terminal(
    lab: Lab, tmp_path: Path
) -> None:
    assert lab.on_control(["pwd"], cwd=tmp_path).stdout.strip() == str(tmp_path)
    assert lab.on_control(["sh", "-c", "exit 7"], check=False).returncode == 7
    primary, terminal = pty.openpty()
    try:
        shown = lab.on_control(["tty"], stdin=terminal).stdout.strip()
        assert shown == os.ttyname(terminal)
    finally:
        os.close(primary)
        os.close(terminal)


def test_a_control_machine_that_is_a_node_knows_itself(
    on_node: Callable[..., subprocess.CompletedProcess[str]], lab: Lab
) -> None:
    script = (
        "import json, subprocess, tailtrain.errors, pyinfra;"
        "status = subprocess.run(['tailscale', 'status', '--json'], check=True, capture_output=True);"
        "print(json.loads(status.stdout)['Self']['HostName'])"
    )
    assert on_node("-c", script).stdout.strip() == "qfox"


# Limits


def test_processor_quotas_hold_in_proportion_to_declared_cores(spare_lab: SpareLab) -> None:
    seconds = 4.0
    burn = ("timeout", str(seconds), "sh", "-c", "while :; do :; done")

    def used(name: str) -> float:
        host = spare_lab.host(name)
        before = host.cpu_seconds()
        with ThreadPoolExecutor() as pool:
            # More busy processes than the quota has cores, so that only the quota limits them.
            for _ in range((os.cpu_count() or 1) + 1):
                pool.submit(host.run, *burn, check=False)
        return (host.cpu_seconds() - before) / seconds

    for name in ("alpha", "beta"):
        quota = spare_lab.host(name).cpu_quota
        assert quota is not None
        assert used(name) <= quota * 1.15, name
    alpha, beta = (spare_lab.host(name).cpu_quota or 0 for name in ("alpha", "beta"))
    assert alpha == pytest.approx(3 * beta, rel=0.01)


def test_a_quota_can_be_changed_while_a_host_runs(spare_lab: SpareLab) -> None:
    beta = spare_lab.host("beta")
    beta.set_cpu_quota(0.05)
    before = beta.cpu_seconds()
    beta.run("timeout", "3", "sh", "-c", "while :; do :; done", check=False)
    assert beta.cpu_seconds() - before < 0.05 * 3 + 0.15


def test_a_process_beyond_the_memory_limit_is_killed(spare_lab: SpareLab) -> None:
    beta = spare_lab.host("beta")
    greedy = f"b = bytearray({beta.state.memory_bytes + (256 << 20)}); b[::4096] = b'x' * len(b[::4096])"
    assert beta.run("python3", "-c", greedy, check=False).returncode in (137, -signal.SIGKILL)
    assert beta.running


# Bringing it up


def test_up_again_changes_nothing_and_is_quick(spare_lab: SpareLab) -> None:
    before = processes(spare_lab)
    began = time.monotonic()
    spare_lab.make()
    assert time.monotonic() - began < 5
    assert processes(spare_lab) == before


def test_a_new_host_is_booted_beside_the_others_and_a_removed_one_goes(spare_lab: SpareLab) -> None:
    before = processes(spare_lab)
    quota = spare_lab.host("alpha").cpu_quota or 0
    spare_lab.declare(alpha=3, beta=1, **{"gamma-with-a-rather-long-name": 4})
    spare_lab.make()
    now = processes(spare_lab)
    assert set(now) - set(before) == {"gamma-with-a-rather-long-name"}
    assert {name: now[name] for name in before} == before
    assert (spare_lab.host("alpha").cpu_quota or 0) < quota
    status = spare_lab.on_control(["tailscale", "status"]).stdout
    assert "gamma-with-a-rather-long-name" in status

    spare_lab.declare(alpha=3, beta=1)
    spare_lab.make()
    assert processes(spare_lab) == before
    assert network.present(spare_lab.settings) == {CONTROL, SWITCH, "alpha", "beta"}
    assert eventually(lambda: "gamma" not in spare_lab.on_control(["tailscale", "status"]).stdout)


def test_a_bare_host_has_no_worker_environment_but_the_same_disk(spare_lab: SpareLab) -> None:
    beta = spare_lab.host("beta")
    address = beta.address
    beta.run("touch", "/root/mine")
    spare_lab.make("--bare", "beta")
    assert beta.run("test", "-e", "/opt/tailtrain", check=False).returncode != 0
    assert beta.run("test", "-e", "/root/mine").returncode == 0
    assert beta.address == address
    spare_lab.host("alpha").run("test", "-e", f"{spare_lab.state.environment}/bin/python")


# Breaking and mending it


def test_after_a_power_cut_a_host_is_offline_and_rejoins_with_its_address(spare_lab: SpareLab) -> None:
    beta = spare_lab.host("beta")
    address, identity = beta.address, beta.run("cat", "/etc/machine-id").stdout
    beta.run("sh", "-c", "echo kept > /root/note; sync")
    beta.power_cut()
    assert not beta.running
    assert eventually(lambda: not _seen_online(spare_lab, "beta"))
    assert spare_lab.cli("status", check=False).returncode == 3

    beta.boot()
    assert beta.running
    assert beta.address == address == beta.run("tailscale", "ip", "-4").stdout.strip()
    assert eventually(lambda: _seen_online(spare_lab, "beta"))
    assert beta.run("cat", "/root/note").stdout == "kept\n"
    assert beta.run("cat", "/etc/machine-id").stdout == identity
    assert ssh(spare_lab, "root", address, "hostname").stdout == "beta\n"
    assert beta.cpu_quota == pytest.approx(beta.state.cpu_quota_cores, abs=0.001)


def _seen_online(lab: Lab, name: str) -> bool:
    status = json.loads(lab.on_control(["tailscale", "status", "--json"]).stdout)
    return any(peer["HostName"] == name and peer["Online"] for peer in status["Peer"].values())


def test_a_host_that_is_cut_off_is_not_reached_until_it_is_restored(spare_lab: SpareLab) -> None:
    beta = spare_lab.host("beta")
    assert reachable(spare_lab, beta.address)
    beta.cut_off()
    assert not reachable(spare_lab, beta.address)
    beta.restore()
    assert eventually(lambda: reachable(spare_lab, beta.address))


def milliseconds_to_connect(lab: Lab, address: str) -> float:
    """The shortest of five TCP handshakes from the control side, a round trip each."""
    program = (
        "import socket,sys,time;"
        "took=lambda t=0: (t:=time.perf_counter(), socket.create_connection((sys.argv[1], 22), 10).close(),"
        " time.perf_counter()-t)[2];"
        "print(1000*min(took() for _ in range(5)))"
    )
    return float(lab.on_control(["python3", "-c", program, address]).stdout)


@pytest.mark.parametrize("place", [["beta"], []], ids=["a host", "the control side"])
def test_a_link_that_is_made_slow_takes_as_much_longer_until_it_is_restored(
    place: list[str], spare_lab: SpareLab
) -> None:
    beta = spare_lab.host("beta")
    before = milliseconds_to_connect(spare_lab, beta.address)
    spare_lab.cli("fault", "slow", *place, "--ms", "40")
    assert 80 <= milliseconds_to_connect(spare_lab, beta.address) < 80 + before + 60
    megabytes = ssh(spare_lab, "root", beta.address, "head -c 4000000 /dev/zero | tr '\\0' x").stdout
    assert len(megabytes) == 4_000_000, "large segments pass as well"
    spare_lab.cli("fault", "restore", *place)
    assert milliseconds_to_connect(spare_lab, beta.address) < 80


def test_a_host_is_broken_and_mended_from_the_command_line(spare_lab: SpareLab) -> None:
    beta = spare_lab.host("beta")
    spare_lab.cli("fault", "cut", "beta")
    assert not reachable(spare_lab, beta.address)
    spare_lab.cli("fault", "restore", "beta")
    assert eventually(lambda: reachable(spare_lab, beta.address))
    spare_lab.cli("fault", "quota", "beta", "0.5")
    assert beta.cpu_quota == pytest.approx(0.5)
    spare_lab.cli("fault", "quota", "beta", "none")
    assert beta.cpu_quota is None
    spare_lab.cli("fault", "power-cut", "beta")
    assert not beta.running
    spare_lab.cli("fault", "boot", "beta")
    assert beta.running
    assert "no such host" in spare_lab.cli("fault", "cut", "gamma", check=False).stderr


def _kill_host(lab: SpareLab) -> None:
    init = lab.host("beta").state.init
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)


def _kill_server(lab: SpareLab) -> None:
    assert lab.state.server is not None
    os.kill(lab.state.server.pid, signal.SIGKILL)


def _kill_control(lab: SpareLab) -> None:
    assert lab.state.control is not None
    os.kill(lab.state.control.pid, signal.SIGKILL)


def _stop_tailscaled(lab: SpareLab) -> None:
    lab.host("beta").run("systemctl", "stop", "tailscaled")


def _delete_namespace(place: str) -> Callable[[SpareLab], None]:
    def delete(lab: SpareLab) -> None:
        subprocess.run(["ip", "netns", "delete", lab.settings.netns(place)], check=True)

    return delete


def _delete_bridge(lab: SpareLab) -> None:
    subprocess.run(["ip", "-netns", lab.settings.netns(SWITCH), "link", "delete", "bridge"], check=True)


def _kill_everything(lab: SpareLab) -> None:
    for pid in cgroups.processes(lab.settings.cgroup):
        os.kill(pid, signal.SIGKILL)


def _cut_off(lab: SpareLab) -> None:
    lab.host("beta").cut_off()


def _slow_down(lab: SpareLab) -> None:
    lab.slow_down(0.2)
    lab.host("beta").slow_down(0.2)


BREAKAGES: dict[str, Callable[[SpareLab], None]] = {
    "a host was cut off": _cut_off,
    "links were made slow": _slow_down,
    "a host was killed": _kill_host,
    "a host's tailscaled was stopped": _stop_tailscaled,
    "the coordination server was killed": _kill_server,
    "the control side was killed": _kill_control,
    "a host's namespace was deleted": _delete_namespace("beta"),
    "the switch's namespace was deleted": _delete_namespace(SWITCH),
    "the bridge was deleted": _delete_bridge,
    "everything was killed": _kill_everything,
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_up_mends_the_lab_after(breakage: str, spare_lab: SpareLab) -> None:
    BREAKAGES[breakage](spare_lab)
    spare_lab.make()
    assert spare_lab.cli("status").returncode == 0
    for name in ("alpha", "beta"):
        assert ssh(spare_lab, "root", spare_lab.host(name).address, "hostname").stdout == f"{name}\n"


@pytest.mark.parametrize("seconds", [0.3, 0.6, 1.0])
def test_up_after_a_killed_up(seconds: float, spare_lab: SpareLab, tmp_path: Path) -> None:
    spare_lab.cli("down")
    command = spare_lab.command("up", "--inventory", str(spare_lab._inventory))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        time.sleep(seconds)
        killed.kill()
    spare_lab.make()
    assert spare_lab.cli("status").returncode == 0
    assert ssh(spare_lab, "root", spare_lab.host("alpha").address, "hostname").stdout == "alpha\n"


@pytest.mark.parametrize("breakage", ["", "everything was killed", "the switch's namespace was deleted"])
def test_down_leaves_nothing_behind(breakage: str, spare_lab: SpareLab) -> None:
    if breakage:
        BREAKAGES[breakage](spare_lab)
    spare_lab.cli("down")
    assert traces(spare_lab.settings) == []
    assert spare_lab.cli("status", check=False).returncode == 3
    spare_lab.cli("down")


# What the tailnet may say


def test_the_policy_of_one_host_can_be_set(spare_lab: SpareLab) -> None:
    alpha, beta = spare_lab.host("alpha"), spare_lab.host("beta")
    spare_lab.coordination.set_ssh_policy("beta", "deny")
    assert eventually(lambda: "does not permit" in ssh(spare_lab, "root", beta.address, "true").stderr)
    assert ssh(spare_lab, "root", alpha.address, "true").returncode == 0
    spare_lab.coordination.set_ssh_policy("beta", "accept")
    assert eventually(lambda: ssh(spare_lab, "root", beta.address, "true").returncode == 0)


def test_the_key_of_one_host_can_expire_and_be_renewed(spare_lab: SpareLab) -> None:
    beta = spare_lab.host("beta")
    spare_lab.coordination.set_key_expired("beta", expired=True)

    def expired() -> bool:
        status = json.loads(spare_lab.on_control(["tailscale", "status", "--json"]).stdout)
        return any(p["HostName"] == "beta" and p.get("Expired", False) for p in status["Peer"].values())

    assert eventually(expired)
    assert not reachable(spare_lab, beta.address)
    spare_lab.make()
    assert eventually(lambda: reachable(spare_lab, beta.address))


# What it refuses


def test_the_lab_cannot_be_changed_from_inside(spare_lab: SpareLab, tmp_path: Path) -> None:
    inside = spare_lab.cli("exec", "--", *spare_lab.command("down"), check=False)
    assert inside.returncode == 1
    assert "inside the lab" in inside.stderr
    assert spare_lab.host("alpha").running
