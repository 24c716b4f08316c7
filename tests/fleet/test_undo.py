"""The program that looks and removes: run as on a host, in a plain python3, on a tree of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailtrain.data import send
from tailtrain.fleet import undo
from tailtrain.planning import layout

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
RUN = "0123456789abcdef"
# Kills the program in the middle, as a power cut does: instead of its Nth change of a folder.
KILLED = """
import os, signal
count = iter(range({number}, -1, -1))
def deadly(change):
    def call(*args, **options):
        next(count) or os.kill(os.getpid(), signal.SIGKILL)
        return change(*args, **options)
    return call
os.unlink, os.rmdir = deadly(os.unlink), deadly(os.rmdir)
"""


UNIT = "tailtrain-of-this-test.service"
MASKED = "of-this-test.service"


@dataclass
class Machine:
    """A folder that stands for a host's whole file system, and the program that works there."""

    root: Path

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def place(self, value: Any) -> Any:
        """A request with all its paths below the folder; its units and its account are nobody's."""
        if isinstance(value, dict):
            return {key: self.place(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.place(item) for item in value]
        return f"{self.root}{value}" if isinstance(value, str) and value.startswith("/") else value

    def ask(self, mode: str, *, prelude: str = "", around: tuple[str, ...] = (), **options: Any) -> Any:
        request = self.place(undo.undo_request(mode, **options))
        request |= {"units": [UNIT], "masked": {UNIT: MASKED}, "account": "tailtrain-of-this-test"}
        request |= {"files": [str(self.at(path)) for path in (layout.SERF_CONFIG, layout.SERF_KEYRING)]}
        words = shlex.split(send.command(sys.executable))
        words[-1] = prelude + words[-1]
        done = subprocess.run(
            [*around, *words],
            input=send.program(*undo.PROGRAM) + json.dumps(request).encode() + b"\n",
            capture_output=True,
            check=False,
        )
        assert done.stderr == b""
        return json.loads(done.stdout) if done.returncode == 0 else done.returncode

    def remove(self, **options: Any) -> Any:
        return self.ask("remove", **options)

    def everything(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A host with everything of ours, and things of others beside it."""
    machine = Machine(tmp_path / "host")
    run = layout.run(RUN)
    for path, content in {
        "/etc/passwd": "root",
        "/opt/others/tool": "theirs",
        layout.CONFIG: json.dumps({"run_id": RUN}),
        f"{layout.UNIT_DIR}/tailtrain-of-this-test.service": "[Service]\n",
        f"{layout.environment('e' * 16)}/lib/torch.py": "torch" * 20,
        f"{layout.environment('e' * 16)}/.complete": "",
        f"{layout.ENVIRONMENT_DIR}/{'e' * 16}.lock": "torch==2",
        f"{layout.code('c' * 16)}/tailtrain/worker.py": "work",
        f"{layout.code('c' * 16)}/.complete": "",
        f"{layout.CHUNK_DIR}/{'a' * 64}": "a chunk",
        f"{layout.MANIFEST_DIR}/{'b' * 64}.json": "{}",
        f"{run}/status.json": json.dumps({"state": "training", "round": 4}),
        f"{run}/checkpoints/round-000004/state.json": "{}",
        f"{run}/final/model.safetensors": "model",
        f"{run}/final/manifest.json": json.dumps({"sha256": "f" * 64}),
        layout.IDENTITY: "key",
    }.items():
        machine.at(path).parent.mkdir(parents=True, exist_ok=True)
        machine.at(path).write_text(content)
    wants = machine.at(f"{layout.UNIT_DIR}/multi-user.target.wants")
    wants.mkdir()
    (wants / "tailtrain-of-this-test.service").symlink_to("../tailtrain-of-this-test.service")
    return machine


OTHERS = [
    *("etc", "etc/passwd", "etc/systemd", "etc/systemd/system", "etc/systemd/system/multi-user.target.wants"),
    *("opt", "opt/others", "opt/others/tool", "var", "var/lib"),
]


def test_looking_names_what_is_there_with_its_bytes_and_changes_nothing(machine: Machine) -> None:
    before = machine.everything()
    found = machine.ask("look")
    assert machine.everything() == before
    sizes = {Path(path).relative_to(machine.root).as_posix(): size for path, size in found["places"].items()}
    assert sizes["opt/tailtrain/env"] == 100 + len("torch==2")
    assert sizes["opt/tailtrain/code"] == len("work")
    assert sizes["var/lib/tailtrain/chunks"] == len("a chunk")
    assert "var/lib/tailtrain/wheels" not in sizes
    assert list(found["units"]) == ["tailtrain-of-this-test.service"]
    assert found["run_id"] == RUN
    [run] = found["runs"]
    assert (run["state"], run["round"], run["model_bytes"], run["model_sha256"]) == (
        "training",
        4,
        5,
        "f" * 64,
    )
    assert found["unexpected"] == []


def test_removing_leaves_nothing_of_ours_and_all_of_others(machine: Machine) -> None:
    assert machine.remove() == {"stuck": ""}
    assert machine.everything() == sorted(OTHERS)
    found = machine.ask("look")
    assert (found["places"], found["units"], found["account"]) == ({}, {}, False)
    assert machine.remove() == {"stuck": ""}, "there is nothing to do, which is no mistake"


def test_what_others_have_put_beside_our_folders_stays(machine: Machine) -> None:
    machine.at("/opt/tailtrain/notes.txt").write_text("mine")
    assert machine.remove() == {"stuck": ""}
    assert machine.everything() == sorted([*OTHERS, "opt/tailtrain", "opt/tailtrain/notes.txt"])


def test_runs_can_be_kept(machine: Machine) -> None:
    kept = [path for path in machine.everything() if f"{layout.RUN_DIR}/".lstrip("/") in f"{path}/"]
    assert machine.remove(keep_runs=True) == {"stuck": ""}
    assert machine.everything() == sorted([*OTHERS, "var/lib/tailtrain", *kept])
    assert machine.at(f"{layout.run(RUN)}/status.json").exists()


def test_links_are_removed_and_not_followed(machine: Machine, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    machine.at(f"{layout.RUN_DIR}/old").symlink_to(precious)
    machine.at(f"{layout.CHUNK_DIR}/link").symlink_to(precious / "file")
    assert machine.ask("look")["places"][str(machine.at(layout.CHUNK_DIR))] == len("a chunk")
    assert machine.remove() == {"stuck": ""}
    assert (precious / "file").read_text() == "kept"
    assert machine.everything() == sorted(OTHERS)


@pytest.mark.parametrize("folder", [*undo.FOLDERS, "/opt/tailtrain"])
def test_a_folder_that_is_a_link_is_named_and_nothing_is_touched(
    machine: Machine, tmp_path: Path, folder: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    machine.at(folder).rename(elsewhere)
    machine.at(folder).symlink_to(elsewhere)
    before = machine.everything()
    stuck = f"{machine.at(folder)} is a symbolic link to {elsewhere}"
    assert machine.ask("look")["unexpected"][0] == stuck
    assert stuck in machine.remove()["stuck"]
    assert machine.everything() == before


def test_a_file_where_a_folder_should_be_is_named_and_nothing_is_touched(machine: Machine) -> None:
    (machine.at(layout.CONFIG)).unlink()
    machine.at(layout.CONFIG_DIR).rmdir()
    machine.at(layout.CONFIG_DIR).write_text("a file")
    before = machine.everything()
    assert machine.remove() == {"stuck": f"{machine.at(layout.CONFIG_DIR)} is no folder"}
    assert machine.everything() == before


@as_root
@pytest.mark.parametrize("folder", [layout.STATE_DIR, layout.CHUNK_DIR, layout.ENVIRONMENT_DIR])
def test_a_mount_point_is_named_and_nothing_is_touched(machine: Machine, tmp_path: Path, folder: str) -> None:
    """A disk of its own for the data, or a folder of another one that is bound to this place."""
    (tmp_path / "disk with space").mkdir()
    before = machine.everything()
    script = 'mount --bind "$0" "$1"; shift; exec "$@"'
    place = str(machine.at(folder))
    around = ("unshare", "--mount", "--", "sh", "-euc", script, str(tmp_path / "disk with space"), place)
    assert machine.ask("look", around=around)["unexpected"] == [f"{place} is a mount point"]
    assert machine.remove(around=around) == {"stuck": f"{place} is a mount point"}
    assert machine.everything() == before


def test_killed_at_any_moment_it_never_leaves_a_half_that_looks_whole_and_the_next_one_ends_it(
    machine: Machine,
) -> None:
    wholes = {
        f"{layout.environment('e' * 16)}/.complete": f"{layout.environment('e' * 16)}/lib/torch.py",
        f"{layout.code('c' * 16)}/.complete": f"{layout.code('c' * 16)}/tailtrain/worker.py",
        f"{layout.run(RUN)}/status.json": f"{layout.run(RUN)}/checkpoints/round-000004/state.json",
    }
    left = [len(machine.everything())]
    # Two changes more each time, from where the one before was killed.
    while machine.remove(prelude=KILLED.format(number=2)) != {"stuck": ""}:
        left.append(len(machine.everything()))
        for voucher, part in wholes.items():
            assert machine.at(part).exists() or not machine.at(voucher).exists()
    assert left == sorted(left, reverse=True)
    assert len(left) > 10
    assert machine.everything() == sorted(OTHERS)


def test_what_cannot_be_removed_is_said_with_the_reason(machine: Machine) -> None:
    prelude = (
        "import os\n"
        "def refuse(path, **_):\n"
        "    raise PermissionError(1, 'Operation not permitted', path)\n"
        "os.unlink = refuse\n"
    )
    stuck = machine.remove(prelude=prelude)["stuck"]
    assert stuck.endswith(".complete cannot be removed: Operation not permitted")


def masked(machine: Machine) -> list[str]:
    """A unit of ours, and one masked for it, which would start at a boot: the names of their files."""
    units = machine.at(layout.UNIT_DIR)
    wants = units / "multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (units / UNIT).write_text("[Unit]")
    (units / MASKED).symlink_to(os.devnull)
    (wants / MASKED).symlink_to(f"/lib/systemd/system/{MASKED}")
    return [str((units / UNIT).relative_to(machine.root)), str((units / MASKED).relative_to(machine.root))]


@pytest.mark.parametrize("mode", ["remove", "retire"])
def test_what_was_masked_for_ours_is_unmasked_and_starts_at_no_boot(machine: Machine, mode: str) -> None:
    names = masked(machine)
    assert machine.ask("look")["masked"] == [MASKED]
    assert set(names) <= set(machine.everything())
    assert machine.ask(mode) == {"stuck": ""}
    assert machine.ask("look")["masked"] == []
    assert not [path for path in machine.everything() if "of-this-test" in path]


def test_what_somebody_else_masked_stays_so(machine: Machine) -> None:
    [_, theirs] = masked(machine)
    for path in [*machine.root.rglob(UNIT)]:
        path.unlink()
    assert not [path for path in machine.everything() if path.endswith(UNIT)]
    assert machine.ask("look")["masked"] == []
    machine.remove()
    assert theirs in machine.everything()


def test_retiring_some_units_takes_nothing_else(machine: Machine) -> None:
    masked(machine)
    before = set(machine.everything())
    for path in (layout.SERF_CONFIG, layout.SERF_KEYRING):
        machine.at(path).write_text("secret")
    assert machine.ask("retire") == {"stuck": ""}
    left = set(machine.everything())
    assert left < before
    assert all("of-this-test" in path for path in before - left)


def test_retiring_that_was_cut_off_leaves_the_unit_by_which_it_is_found_again(machine: Machine) -> None:
    [ours, _] = masked(machine)
    for number in range(20):
        if machine.ask("retire", prelude=KILLED.format(number=number)) == {"stuck": ""}:
            break
        assert ours in machine.everything()
    assert ours not in machine.everything()
