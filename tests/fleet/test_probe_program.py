"""What the probe says of a host where somebody has put other things in the place of ours."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.data import send, verify
from tailtrain.fleet import files_program, lock_program, probe_program, units_program
from tailtrain.fleet.probe import probe_request
from tailtrain.planning import layout
from tailtrain.planning.plan import Material
from tailtrain.planning.topology.measurements import read_measured

if TYPE_CHECKING:
    from pathlib import Path

US = getpass.getuser()
RUN = "0123456789abcdef"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files to others needs root")


def write(path: Path, content: str | bytes = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def asked(root: Path) -> Any:
    """What the whole probe answers, sent to a plain python3 as to a host, whose places are below `root`."""
    request: Any = json.loads(
        json.dumps(probe_request(Material("c" * 16, {"worker-cpu": "e" * 16}, cpu_build_at_hand=False)))
    )
    request |= {
        "known": [],
        "account": US,
        "folders": {f"{root}{path}": [US, mode] for path, (_, mode) in request["folders"].items()},
        "files": [f"{root}{path}" for path in request["files"]],
        "secrets": [f"{root}{path}" for path in request["secrets"]],
        "where": {name: f"{root}{path}" for name, path in request["where"].items()},
    }
    done = subprocess.run(
        ["sh", "-c", send.ask_command(sys.executable)],
        input=send.question([verify, files_program, lock_program, units_program, probe_program], request),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == b""
    return send.answer(done.stdout.decode())["parts"]


def test_pipes_in_the_place_of_files_hold_nothing_up_and_say_nothing(tmp_path: Path) -> None:
    for path in (layout.CONFIG, layout.RECEIPT, f"{layout.MANIFEST_DIR}/{'b' * 64}.json", layout.PEER_ID):
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place)
    found = asked(tmp_path)
    assert found["files"][f"{tmp_path}{layout.CONFIG}"] is None
    assert (found["receipt"], found["manifests"], found["peer_id"]) == (None, [], None)
    assert found["hardware"]["memory_bytes"] > 0


def test_what_a_worker_measured_is_answered_and_taken_no_further_than_its_form(tmp_path: Path) -> None:
    place = tmp_path / layout.MEASURED.lstrip("/")
    assert asked(tmp_path)["measured"] == {}
    write(place, json.dumps({"run": RUN, "tokens_per_second": "1e9"}))
    found = asked(tmp_path)["measured"]
    assert found == {"run": RUN, "tokens_per_second": "1e9"}
    assert read_measured(found) is None


def test_a_chunk_folder_that_is_a_link_holds_nothing_of_ours(tmp_path: Path) -> None:
    write(tmp_path / "cron.d" / "job")
    (tmp_path / "cron.d" / RUN).mkdir()
    state = tmp_path / layout.STATE_DIR.lstrip("/")
    state.mkdir(parents=True)
    for name in ("chunks", "runs", "manifests"):
        (state / name).symlink_to(tmp_path / "cron.d")
    found = asked(tmp_path)
    assert (found["chunks"]["sizes"], found["runs"], found["manifests"]) == ({}, [], [])


def test_names_that_are_no_text_come_back_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / layout.CHUNK_DIR.lstrip("/")
    odd = b"\xff\xfe chunk"
    write(folder / os.fsdecode(odd), "stray")
    [name] = asked(tmp_path)["chunks"]["sizes"]
    assert os.fsencode(name) == odd


def test_files_are_read_only_where_they_are_files_and_not_too_large(tmp_path: Path) -> None:
    real = write(tmp_path / "real", "text")
    (tmp_path / "link").symlink_to(real)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(files_program.MOST_BYTES + 1)
    assert files_program.read(str(real)) == "text"
    for name in ("link", "large", "nowhere", "."):
        assert files_program.read(str(tmp_path / name)) is None
    assert files_program.sha256_of(str(tmp_path / "link")) == ""
    assert files_program.sha256_of(str(real)) == hashlib.sha256(b"text").hexdigest()
    assert files_program.read_system(str(tmp_path / "link")) == "text"


def test_runs_are_real_folders_with_the_name_of_a_run(tmp_path: Path) -> None:
    write(tmp_path / RUN / "status.json", json.dumps({"state": "finished"}))
    write(tmp_path / "notes" / "status.json", "{}")
    (tmp_path / ("f" * 16)).symlink_to(tmp_path / RUN)
    write(tmp_path / ("e" * 16), "a file")
    [run] = probe_program.stored_runs(str(tmp_path))
    assert (run["run_id"], run["state"]) == (RUN, "finished")


def test_it_is_said_why_a_folder_is_not_as_it_should_be(tmp_path: Path) -> None:
    folder = tmp_path / "chunks"

    def why() -> str:
        return probe_program.account(US, {str(folder): (US, "0750")})

    assert why() == f"{folder} is not there"
    folder.mkdir(mode=0o755)
    assert why() == f"{folder} has other permissions or another owner"
    folder.chmod(0o750)
    assert why() == ""
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert why() == f"{folder} is a symbolic link to '{tmp_path}'"
    folder.unlink()
    folder.write_text("")
    assert why() == f"{folder} is no folder"
    assert probe_program.account("nobody-of-this-name", {}) == "not there"


def test_an_environment_without_its_python_is_not_complete(tmp_path: Path) -> None:
    for name in ("whole", "half", "closed", "dangling"):
        write(tmp_path / name / ".complete")
        (tmp_path / name / "bin").mkdir()
    write(tmp_path / "whole" / "bin" / "python", mode=0o755)
    (tmp_path / "dangling" / "bin" / "python").symlink_to("nowhere")
    write(tmp_path / "closed" / "bin" / "python", mode=0o644)
    (tmp_path / "link").symlink_to(tmp_path / "whole")
    assert files_program.complete(str(tmp_path), "bin/python") == ["whole"]
    assert len(files_program.complete(str(tmp_path))) == 4


def test_a_masked_unit_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemctl of Debian 12 shows them."""
    shown = (
        "Id=a.service\nLoadState={}\nActiveState=inactive\nUnitFileState={}\nMainPID=0\nDropInPaths=/x.conf"
    )
    both = shown.format("loaded", "enabled") + "\n\n" + shown.replace("a.s", "b.s").format("masked", "masked")
    write(tmp_path / "systemctl", f"#!/bin/sh\ncat <<'END'\n{both}\nEND\n", 0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = units_program.units(["a.service", "b.service"])
    assert found["a.service"]["drop_ins"] == ["/x.conf"]
    assert found["b.service"]["drop_ins"] == ["/x.conf", "masked (systemctl unmask b.service)"]
    assert [found[unit]["masked"] for unit in ("a.service", "b.service")] == [False, True]


def test_a_running_unit_says_what_it_was_started_with() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"A": "b", "TAILTRAIN_APPLIED": "0123456789abcdef"},
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert units_program.applied(process.pid) == "0123456789abcdef"
        process.communicate(b"\n")
    assert units_program.applied(os.getpid()) == ""
    assert units_program.applied(0) == ""


def test_of_secrets_a_host_answers_hash_and_permissions_alone(tmp_path: Path) -> None:
    path = tmp_path / layout.SERF_CONFIG.lstrip("/")
    write(path, "the key itself", 0o600)
    found = asked(tmp_path)
    [said] = [each for each in found["secrets"].values() if each]
    assert said.split()[:2] == [hashlib.sha256(b"the key itself").hexdigest(), "0600"]
    assert found["modified"][str(path)]
    assert "the key itself" not in json.dumps(found)


def test_serf_s_package_is_missing_where_its_program_is() -> None:
    request: Any = probe_request(Material("c" * 16, {"worker-cpu": "e" * 16}, cpu_build_at_hand=False))
    for program, missing in ((sys.executable, False), ("/nowhere/serf", True)):
        found = probe_program.reply(request | {"programs": {"serf": program}})
        assert ("serf" in found["missing_packages"]) is missing


@as_root
def test_a_chunk_that_the_worker_may_not_read_is_damaged(tmp_path: Path) -> None:
    names = []
    for number, (owner, mode) in enumerate(((0, 0o600), (0, 0o644), (65534, 0o600), (65534, 0o040))):
        content = f"chunk {number}"
        names.append(hashlib.sha256(content.encode()).hexdigest())
        os.chown(write(tmp_path / names[-1], content, mode), owner, owner)
    assert probe_program.chunks(str(tmp_path), "nobody")["damaged"] == dict.fromkeys(
        (names[0], names[3]), "the worker may not read it"
    )
    assert stat.S_IMODE((tmp_path / names[0]).stat().st_mode) == 0o600, "looking changes nothing"
