"""The units say what the plan says, and shut the worker in."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tailtrain.planning import layout
from tailtrain.spec import NodeReserve
from tests.plans.situations import GIB, MATERIAL, NAMES, PRIMARY, Situation

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.planning.plan import HostPlan

UNITS = (layout.WORKER_UNIT, layout.VALIDATE_UNIT)
# What systemd.exec(5) offers against a worker that was taken over; a line that goes missing is a decision.
HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "ProtectClock": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectProc": "invisible",
    "LockPersonality": "yes",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "RemoveIPC": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
    "StateDirectoryMode": "0750",
    "User": layout.ACCOUNT,
    "Group": layout.ACCOUNT,
}


def unit(host: HostPlan, name: str) -> dict[str, list[str]]:
    """A unit's settings, each with all its values, in order; sections do not share any."""
    text = next(change.after for change in host.files if change.path == f"{layout.UNIT_DIR}/{name}")
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith(("[", "#")):
            key, equals, value = line.partition("=")
            assert equals, line
            assert key.isidentifier(), line
            settings.setdefault(key, []).append(value)
    return settings


def service(name: str, situation: Situation | None = None, host: str = "architect") -> dict[str, list[str]]:
    return unit((situation or Situation()).plan().host(host), name)


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("host", NAMES)
def test_limits_are_those_of_the_plan(name: str, host: str) -> None:
    plan = Situation(reserves={host: NodeReserve(cores=1, ram_gb=1, nice=12)}).plan().host(host)
    settings, limits = unit(plan, name), plan.limits
    assert limits is not None
    assert settings["CPUQuota"] == [f"{(plan.node.cores - 1) * 100}%"]
    assert settings["MemoryMax"] == [str((plan.node.ram_gb - 1) * GIB)]
    assert settings["Nice"] == ["12"]
    assert settings["TasksMax"] == ["512"]
    assert f"OMP_NUM_THREADS={limits.threads}" in settings["Environment"]
    assert f"PYTHONPATH={layout.code(MATERIAL.code_id)}" in settings["Environment"]
    assert settings["WorkingDirectory"] == [layout.STATE_DIR]
    assert settings["StateDirectory"] == [layout.STATE_DIR.removeprefix("/var/lib/")]


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("host", [PRIMARY, "architect"])
def test_the_worker_is_shut_in(name: str, host: str) -> None:
    settings = service(name, host=host)
    assert {key: settings.get(key) for key in HARDENING} == {key: [value] for key, value in HARDENING.items()}


def test_a_node_without_a_gpu_sees_no_devices_and_one_with_a_gpu_only_that() -> None:
    for name in UNITS:
        on_cpu, on_gpu = service(name), service(name, host=PRIMARY)
        assert on_cpu["PrivateDevices"] == ["yes"]
        assert "DeviceAllow" not in on_cpu
        assert "PrivateDevices" not in on_gpu
        assert on_gpu["DevicePolicy"] == ["closed"]
        assert on_gpu["DeviceAllow"] == ["char-nvidia rw"]


def test_a_declared_gpu_that_is_not_there_opens_nothing() -> None:
    settings = service(layout.WORKER_UNIT, Situation().hardware(PRIMARY, gpus=()), PRIMARY)
    assert settings["PrivateDevices"] == ["yes"]
    assert "DeviceAllow" not in settings


def test_each_node_runs_the_environment_of_its_lock() -> None:
    for host, lock in ((PRIMARY, "worker-cuda"), ("judge", "worker-cpu")):
        python = f"{layout.environment(MATERIAL.locks[lock])}/bin/python"
        for name, command in ((layout.WORKER_UNIT, "train"), (layout.VALIDATE_UNIT, "validate")):
            settings = service(name, host=host)
            assert settings["ExecStart"] == [
                f"{python} -m tailtrain.worker {command} --config {layout.CONFIG}"
            ]


def test_a_worker_that_dies_is_started_again_and_again_and_at_boot() -> None:
    settings = service(layout.WORKER_UNIT)
    assert settings["Restart"] == ["on-failure"]
    assert settings["StartLimitIntervalSec"] == ["0"]
    assert settings["WantedBy"] == ["multi-user.target"]
    validation = service(layout.VALIDATE_UNIT)
    assert validation["Type"] == ["oneshot"]
    assert "Restart" not in validation


def test_files_are_closed_to_whom_they_do_not_concern() -> None:
    modes = {change.path: (change.mode, change.group) for change in Situation().plan().host("judge").files}
    assert modes[layout.CONFIG] == ("0640", layout.ACCOUNT)
    assert {modes[f"{layout.UNIT_DIR}/{name}"] for name in UNITS} == {("0644", "root")}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("host", [PRIMARY, "judge"])
def test_systemd_finds_nothing_to_say_and_little_exposed(host: str, tmp_path: Path) -> None:
    plan = Situation().plan().host(host)
    python = f"{layout.environment(MATERIAL.locks[plan.lock])}/bin/python"
    for name in UNITS:
        text = next(change.after for change in plan.files if change.path.endswith(name))
        path = tmp_path / name
        path.write_text(text.replace(python, "/bin/true"))
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
        )
        assert (verified.returncode, verified.stderr) == (0, "")
        # On systemd's scale of 0 (shut in) to 100 (exposed).
        exposed = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=20", path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert exposed.returncode == 0, exposed.stdout
