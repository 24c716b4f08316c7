"""What a plan says before it is done: drift, bad input, old runs, hosts that are lost, leave and return."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.project import CHECKOUT, NODES, STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.project import Project

pytestmark = pytest.mark.lab

LAST = "racknerd-510bd9c"
LINE = f'    ("@tailscale/{LAST}", {{"cores": 2, "ram_gb": 4, "storage_gb": 100}}),\n'
UNIT = "/etc/systemd/system/tailtrain-worker.service"


@pytest.fixture(autouse=True)
def whole(project: Project, trained: str) -> Iterator[None]:
    """The fleet as it was declared and trained, and so again afterwards."""
    assert project.plan()[0] == 0
    yield
    project.deploy("-y")
    assert project.plan()[0] == 0


def document(project: Project) -> tuple[int, dict[str, Any]]:
    """The plan as JSON, with the exit code."""
    done = project.run("tailtrain", "plan", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def traces(project: Project, host: str) -> list[str]:
    """Every file and folder of ours on a host, with the time of its last change."""
    places = f"{STATE} /etc/tailtrain /opt/tailtrain /etc/systemd/system/tailtrain-*"
    found = project.on(host, f"find {places} -printf '%p %T@\\n' 2>/dev/null || true").splitlines()
    # The environment is the lab's own; the probe may remember more hashes than before, the agent whom it met.
    passing = ("/env/", ".verified.json", f"{STATE}/serf")
    return sorted(line for line in found if not any(part in line for part in passing))


def test_what_somebody_changed_is_named_three_ways_and_put_right(project: Project) -> None:
    applied = project.on("judge", f"sha256sum < {UNIT}")[:12]
    project.on("judge", f"echo Nice=0 >> {UNIT}")
    edited = project.on("judge", f"sha256sum < {UNIT}")[:12]
    chunk = project.config("architect")["data"][0]["ranges"][0][0]
    project.on("architect", f"printf X | dd of={STATE}/chunks/{chunk} bs=1 seek=9 conv=notrunc 2>/dev/null")
    code, said = project.plan()
    assert code == 2
    assert re.search(rf"receipt  {applied}, applied 20\S+ by \S+", said)
    assert re.search(rf"found    {edited}, written 20", said)
    assert re.search(rf"wanted   {applied}\n", said)
    subject = f"architect: chunk {chunk[:16]}"
    assert f"{subject}\n    receipt  verified\n    found    has other content" in said
    project.deploy("-y")
    assert project.on("judge", f"sha256sum < {UNIT}")[:12] == applied


def test_pyinfra_s_dry_run_shows_the_same_plan(project: Project) -> None:
    project.on("judge", f"echo Nice=0 >> {UNIT}")
    mine = project.plan("--diff")[1]
    done = project.run("pyinfra", "inventory.py", "deploys/train.py", "--dry", "--diff")
    said = done.stdout + done.stderr
    start = mine.index("Drift: ")
    assert mine[start:].rstrip() in said
    assert "-Nice=0" in mine


def test_a_template_that_fails_for_one_host_changes_nothing_on_any(project: Project) -> None:
    template = project.folder / "templates" / "tailtrain-worker.service.j2"
    text = template.read_text()
    project.on("architect", f"echo Nice=0 >> {UNIT}")
    before = {node: traces(project, node) for node in NODES}
    for_judge_alone = "{% if cpu_quota_percent == 400 %}{{ nope }}{% endif %}\n"
    template.write_text(text + for_judge_alone)
    try:
        for command in (("tailtrain", "plan"), ("pyinfra", "-y", "inventory.py", "deploys/train.py")):
            done = project.run(*command)
            said = done.stdout + done.stderr
            assert done.returncode == 1
            assert re.search(r"judge, netcup-router: templates/\S+, line \d+: .*'nope' is undefined", said)
            assert "Traceback" not in said
        assert {node: traces(project, node) for node in NODES} == before
    finally:
        template.write_text(text)


def test_old_runs_go_by_the_rule_and_what_that_frees_is_said(project: Project) -> None:
    for age in range(1, 5):
        run = f"{STATE}/runs/{age:016x}"
        project.on(
            "judge",
            f"mkdir -p {run} && cd {run} && head -c 1000000 /dev/zero > weights"
            ' && echo \'{"state": "finished"}\' > status.json'
            # Newer than whatever else the lab has kept.
            f" && touch -d '{10 - age} days' status.json",
        )
    code, said = project.plan()
    assert code == 2
    assert re.search(r"judge: run 0000000000000003 \(finished\), frees 1.0 MB", said)
    project.deploy("-y")
    left = project.on("judge", f"ls {STATE}/runs").split()
    assert {name for name in left if name.startswith("00000000")} == {f"{age:016x}" for age in (1, 2)}
    project.on("judge", f"rm -r {STATE}/runs/00000000*")


def test_a_host_that_is_lost_and_comes_back_costs_nothing(project: Project) -> None:
    before = {node: traces(project, node) for node in NODES}
    judge = project.lab.host("judge")
    judge.cut_off()
    try:
        code, plan = document(project)
        assert code == 3
        [unknown] = [host for host in plan["hosts"] if host["unknown"]]
        assert unknown["name"] == "judge"
        done = project.run("pyinfra", "-y", "inventory.py", "deploys/train.py")
        assert done.returncode == 1, "a host is unknown"
    finally:
        judge.restore()
    assert project.plan()[0] == 0
    assert {node: traces(project, node) for node in NODES} == before


def test_one_line_less_and_the_host_is_clean_when_the_others_have_its_records(project: Project) -> None:
    owned = {tuple(piece) for piece in project.config(LAST)["data"][0]["ranges"]}
    records = sum(stop - start for _, start, stop in owned)
    inventory = (project.folder / "inventory.py").read_text()
    project.declare(LINE, "")
    try:
        code, said = project.plan()
        assert code == 2
        assert re.search(rf"Left the inventory\n  {LAST} ", said)
        # What it had, and what else moves because the topology is chosen anew for those who are left.
        moves = r"natural: ([\d,]+) records to another node than before, the least possible is ([\d,]+)"
        found = re.search(moves, " ".join(said.split()))
        assert found is not None, said
        moved, least = (int(number.replace(",", "")) for number in found.groups())
        assert moved == least >= records
        assert "1 leaving" in said
        said = project.deploy("-y")
        assert re.search(rf"{LAST} +done +cleaned", said)
        assert traces(project, LAST) == []
        assert project.on(LAST, "getent passwd tailtrain || echo none").strip() == "none"
        assert project.plan()[0] == 0
        claimed = [tuple(piece) for node in NODES[:-1] for piece in project.config(node)["data"][0]["ranges"]]
        total = sum(stop - start for _, start, stop in claimed)
        assert len(claimed) == len(set(claimed))
        assert total == document(project)[1]["datasets"][0]["trained_on"]
    finally:
        # As if it was set up anew: in the lab the worker's environment comes with the system.
        project.lab.up(project.folder / "inventory.py")
        (project.folder / "inventory.py").write_text(inventory)
        project.lab.up(project.folder / "inventory.py")
    code, said = project.plan()
    assert re.search(rf"{LAST} .*first install", said)


def test_a_host_under_another_name_has_not_left(project: Project) -> None:
    inventory = (project.folder / "inventory.py").read_text()
    name = "judge.lab.ts.net"
    try:
        (project.folder / "inventory.py").write_text(inventory.replace("/judge", f"/{name}"))
        said = project.plan()[1]
        assert re.search(rf"{name} +compute +4 ", said)
        assert "Left the inventory" not in said
    finally:
        (project.folder / "inventory.py").write_text(inventory)


def test_a_host_that_left_and_is_off_is_remembered_and_holds_nothing_up(project: Project) -> None:
    inventory = (project.folder / "inventory.py").read_text()
    last = project.lab.host(LAST)
    last.power_cut()
    try:
        project.declare(LINE, "")
        code, said = project.plan()
        assert code == 3
        assert re.search(rf"{LAST} +unreachable: what it has stays there until it answers", said)
    finally:
        (project.folder / "inventory.py").write_text(inventory)
        last.boot()


def test_the_checkout_s_inventory_is_what_was_declared() -> None:
    assert LINE in (CHECKOUT / "inventory.py").read_text()
