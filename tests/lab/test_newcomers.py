"""A new host's way in, on a real tailnet: listing machines, reading their hardware, writing the inventory."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.tailnet import CONTROL_NAME

if TYPE_CHECKING:
    import subprocess

    from lab.lab import Lab
    from tests.lab.conftest import SpareLab

pytestmark = pytest.mark.lab

CHECKOUT = Path(__file__).resolve().parents[2]
NODES = {"qfox", "architect", "judge", "ip-172-31-25-81", "netcup-router", "racknerd-510bd9c"}
MARKER = "/etc/tailtrain-lab.json"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that has everything but an inventory and group data."""
    for name in ("deploys", "templates", "locks"):
        shutil.copytree(CHECKOUT / name, tmp_path / name)
    (tmp_path / ".tailtrain").mkdir()
    (tmp_path / ".tailtrain" / "demo").symlink_to(CHECKOUT / ".tailtrain" / "demo")
    return tmp_path


def type_in(lab: Lab, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of tailtrain on the control side, in a folder."""
    return lab.on_control(("tailtrain", *words), cwd=folder, check=False, timeout=120)


def hosts(text: str) -> dict[str, list[Any]]:
    """The groups of an inventory that is written in literals."""
    values: dict[str, Any] = {}
    exec(compile(text, "inventory.py", "exec"), values)  # noqa: S102  # what tailtrain wrote
    return {name: values[name] for name in ("primary", "compute")}


def test_machines_are_listed_from_the_netmap_alone(lab: Lab, project: Path) -> None:
    shutil.copy(CHECKOUT / "inventory.py", project)
    shutil.copytree(CHECKOUT / "group_data", project / "group_data")
    done = type_in(lab, project, "devices", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    roles = {one["name"]: one["role"] for one in found["devices"]}
    assert roles == {
        **dict.fromkeys(NODES, "compute"),
        "qfox": "primary",
        CONTROL_NAME: None,
    }
    assert found["admin_api"] is False
    assert found["missing"] == []
    assert all(one["ssh"] and one["online"] for one in found["devices"] if one["role"])


def test_an_inventory_is_written_that_a_plan_can_be_made_of(lab: Lab, project: Path) -> None:
    """The lab emulates what its inventory declares, so the same comes out."""
    done = type_in(lab, project, "init")
    assert done.returncode == 0, done.stderr
    text = (project / "inventory.py").read_text()
    written, declared = hosts(text), hosts((CHECKOUT / "inventory.py").read_text())
    assert written["primary"] == declared["primary"]
    assert sorted(written["compute"]) == sorted(declared["compute"])
    # The control side has no systemd here.
    assert f"#   {CONTROL_NAME}  no systemd" in text
    assert "6 nodes, qfox is the primary" in done.stdout
    plan = type_in(lab, project, "plan")
    assert plan.returncode in (0, 2), plan.stderr
    for name in NODES:
        assert name in plan.stdout


def test_a_host_is_added_and_the_rest_of_the_file_stays(lab: Lab, project: Path) -> None:
    written = type_in(lab, project, "init", "qfox", "architect", "--primary", "architect")
    assert written.returncode == 0, written.stderr
    before = (project / "inventory.py").read_text()
    assert "# Machines" not in before
    shown = type_in(lab, project, "add", "judge")
    line = '    ("@tailscale/judge", {"cores": 4, "ram_gb": 8, "storage_gb": 200}),\n'
    assert shown.stdout == line, shown.stderr
    assert (project / "inventory.py").read_text() == before
    added = type_in(lab, project, "add", "judge", "netcup-router", "--write", "--ssh-user", "deploy")
    assert added.returncode == 0, added.stderr
    after = (project / "inventory.py").read_text()
    assert hosts(after)["compute"][1:] == [
        (
            f"@tailscale/{name}",
            {"cores": 4, "ram_gb": 8, "storage_gb": disk, "ssh_user": "deploy", "_sudo": True},
        )
        for name, disk in (("judge", 200), ("netcup-router", 100))
    ]
    assert [line for line in after.splitlines() if line not in before] == added.stdout.splitlines()
    again = type_in(lab, project, "add", "judge", "--write")
    assert (again.returncode, again.stdout) == (1, "")
    assert "is in the inventory already" in again.stderr


def test_nothing_is_written_where_one_of_them_cannot_be_a_node(lab: Lab, project: Path) -> None:
    type_in(lab, project, "init", "qfox")
    before = (project / "inventory.py").read_text()
    refused = type_in(lab, project, "add", "judge", CONTROL_NAME, "--write")
    assert refused.returncode == 1
    assert "no systemd, where systemd as PID 1 is needed" in refused.stderr
    assert "Nothing was written" in refused.stderr
    nobody = type_in(lab, project, "add", "judge", "--write", "--ssh-user", "nosuch")
    assert nobody.returncode == 1
    assert "does not permit to log in as nosuch" in nobody.stderr
    assert (project / "inventory.py").read_text() == before


def test_the_policy_names_who_logs_in_and_where_workers_meet(lab: Lab, project: Path) -> None:
    type_in(lab, project, "init", "qfox", "judge")
    done = type_in(lab, project, "policy")
    assert done.returncode == 0, done.stderr
    assert '"users": ["root"]' in done.stdout
    assert '"100.64.0.2:45001"' in done.stdout


def test_machines_that_cannot_be_nodes_are_named_with_the_reason(spare_lab: SpareLab, tmp_path: Path) -> None:
    """One is off; the other shows the hardware that it really has, as it no longer emulates any."""
    alpha, beta = spare_lab.host("alpha"), spare_lab.host("beta")
    alpha.run("mv", MARKER, f"{MARKER}.away")
    beta.power_cut()
    try:
        deadline = time.monotonic() + 20
        while beta.online and time.monotonic() < deadline:
            time.sleep(0.2)
        listed = type_in(spare_lab, tmp_path, "devices")
        done = type_in(spare_lab, tmp_path, "init")
        named = type_in(spare_lab, tmp_path, "init", "alpha", "beta", "--force")
    finally:
        beta.boot()
        alpha.run("mv", f"{MARKER}.away", MARKER)
    assert re.search(r"^  beta  offline", listed.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "inventory.py").read_text()
    ((name, data),) = hosts(text)["primary"]
    assert name == "@tailscale/alpha"
    assert data["cores"] == len(os.sched_getaffinity(0))
    assert data["ram_gb"] >= 1
    assert hosts(text)["compute"] == []
    assert "#   beta         no answer from" in text
    assert "the host is offline" in text
    # Who is named is wanted: nothing is written without them, and what was there stays.
    assert named.returncode == 1
    assert "beta: cannot be a node" in named.stderr
    assert (tmp_path / "inventory.py").read_text() == text
