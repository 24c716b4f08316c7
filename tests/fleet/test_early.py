"""What is wrong on this machine is said before any host is waited for, by pyinfra itself as by our commands.

No tailnet is needed: a status document stands for the daemon, and where a test gets as far as connecting, its
hosts are unknown there.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Ask = Callable[..., dict[str, Any]]
    Change = Callable[[Path], None]

TRAIN = ("-y", "inventory.py", "deploys/train.py", "--dry")
PLAN = ("plan",)
NO_PEERS = {
    "Version": "1.102.5",
    "BackendState": "Running",
    "MagicDNSSuffix": "example.ts.net",
    "Self": {"HostName": "here", "DNSName": "here.example.ts.net.", "TailscaleIPs": ["100.64.0.1"]},
    "Peer": {},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project's own files, with data sets of a few records."""
    for folder in ("deploys", "templates", "locks", "group_data"):
        shutil.copytree(PROJECT / folder, tmp_path / folder)
    for file in ("inventory.py", "config.py"):
        shutil.copy(PROJECT / file, tmp_path)
    demo = tmp_path / ".tailtrain" / "demo"
    demo.mkdir(parents=True)
    for name in ("prose", "code"):
        pq.write_table(pa.table({"text": [f"{name} {n}" for n in range(300)]}), demo / f"{name}.parquet")
    (tmp_path / "status.json").write_text(json.dumps(NO_PEERS))
    return tmp_path


@pytest.fixture
def ask(ask_command: Ask, project: Path) -> Ask:
    def run(*arguments: str, program: str = "tailtrain", status: str = "status.json") -> dict[str, Any]:
        environment = {"TAILTRAIN_STATUS_JSON": str(project / status), "PYINFRA_PROGRESS": "off"}
        return ask_command(folder=str(project), arguments=arguments, program=program, environment=environment)

    return run


def rewrite(file: str, before: str, after: str) -> Change:
    def change(project: Path) -> None:
        text = (project / file).read_text()
        assert before in text
        (project / file).write_text(text.replace(before, after, 1))

    return change


def write(file: str, content: bytes) -> Change:
    def change(project: Path) -> None:
        (project / file).write_bytes(content)

    return change


def add(file: str, line: str) -> Change:
    def change(project: Path) -> None:
        (project / file).write_text((project / file).read_text() + line + "\n")

    return change


def records(name: str, texts: list[str]) -> Change:
    def change(project: Path) -> None:
        path = project / ".tailtrain" / "demo" / f"{name}.parquet"
        pq.write_table(pa.table({"text": texts}), path)

    return change


def damage(name: str) -> Change:
    def change(project: Path) -> None:
        path = project / ".tailtrain" / "demo" / f"{name}.parquet"
        pq.write_table(pa.table({"text": ["x" * 90] * 900}), path, compression="none", use_dictionary=False)
        content = bytearray(path.read_bytes())
        content[2_000:40_000] = b"\xff" * 38_000
        path.write_bytes(bytes(content))

    return change


MISTAKES: list[tuple[str, Change, str]] = [
    ("no hosts", write("inventory.py", b""), "inventory.py: names no hosts"),
    ("no Python", write("inventory.py", b"primary = [\n"), "inventory.py, line 1: cannot be read"),
    ("no text", write("group_data/compute.py", b"x = '\xff'\n"), "group_data/compute.py: cannot be read"),
    ("an error", write("group_data/compute.py", b"x = 1 / 0\n"), "ZeroDivisionError"),
    ("ends", write("inventory.py", b"raise SystemExit\n"), "ends the program"),
    ("a user", rewrite("inventory.py", '"cores": 8', '"cores": 8, "ssh_user": 5'), "architect: ssh_user"),
    ("sudo", add("group_data/all.py", '_sudo = "yes"'), "group_data/all.py: _sudo: wrong value"),
    ("a group", rewrite("inventory.py", "compute = [", "compute = 5\n_x = ["), "compute is no list of hosts"),
    ("a host", rewrite("inventory.py", '("@tailscale/judge"', "(5"), "an entry of compute has no name"),
    ("a setting", add("group_data/all.py", "modle = {}"), "Did you mean model?"),
    ("a file", rewrite("group_data/all.py", "code.parquet", "none.parquet"), "none.parquet: the data set's"),
    ("a template", rewrite("templates/worker.json.j2", "{{ seed", "{{ sed"), "'sed' is undefined"),
    ("one record", records("code", ["the only one"]), "no text is held out to judge the model by"),
    ("a damaged page", damage("code"), "the parquet file cannot be read beyond record 0"),
    ("a lock", write("locks/worker-cuda.lock", b"\xff"), "worker-cuda.lock: is no text"),
    ("wheels", add("group_data/all.py", 'wheels = "none"'), "group_data: wheels: no such folder"),
]


@pytest.mark.parametrize(("change", "words"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
@pytest.mark.parametrize(("program", "arguments"), [("pyinfra", TRAIN), ("tailtrain", PLAN)])
def test_a_mistake_is_one_sentence_and_no_host_is_asked(
    ask: Ask, project: Path, program: str, arguments: tuple[str, ...], change: Change, words: str
) -> None:
    change(project)
    ended = ask(*arguments, program=program)
    said = ended["stdout"] + ended["stderr"]
    assert ended["exit_code"] == 1, said
    assert words in said
    assert "Traceback" not in said
    assert "Connecting" not in said
    assert "no machine of the tailnet" not in said
    about = [line for line in ended["stderr"].splitlines() if line and "Loading" not in line]
    assert len(about) == 1, said


@pytest.mark.parametrize(("program", "arguments"), [("pyinfra", TRAIN), ("tailtrain", PLAN)])
def test_several_mistakes_are_told_at_once(
    ask: Ask, project: Path, program: str, arguments: tuple[str, ...]
) -> None:
    rewrite("templates/worker.json.j2", "{{ seed", "{{ sed")(project)
    rewrite("group_data/all.py", "code.parquet", "none.parquet")(project)
    said = ask(*arguments, program=program)["stderr"]
    assert "2 problems" in said
    assert "'sed' is undefined" in said
    assert "none.parquet: the data set's file is missing" in said


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("pyinfra", TRAIN), ("pyinfra", ("-y", "inventory.py", "deploys/stop.py")), ("tailtrain", PLAN)],
)
def test_a_daemon_that_does_not_answer_is_said_once(
    ask: Ask, program: str, arguments: tuple[str, ...]
) -> None:
    ended = ask(*arguments, program=program, status="none.json")
    said = ended["stdout"] + ended["stderr"]
    assert ended["exit_code"] == 1
    assert said.count("the status document cannot be read") == 1
    assert "Connecting" not in said


def test_a_right_project_gets_as_far_as_its_hosts(ask: Ask) -> None:
    ended = ask(*TRAIN, program="pyinfra")
    assert "Connecting to hosts" in ended["stderr"]
    assert ended["stderr"].count("no machine of the tailnet has this name") == 6


def peers(*names: str) -> dict[str, Any]:
    return {
        f"nodekey:{name}": {
            "HostName": name,
            "DNSName": f"{name}.example.ts.net.",
            "TailscaleIPs": [f"100.64.0.{number}"],
            "Online": True,
        }
        for number, name in enumerate(names, 2)
    }


@pytest.mark.parametrize(("program", "arguments"), [("pyinfra", TRAIN), ("tailtrain", PLAN)])
def test_a_misspelt_host_is_no_host_that_left(
    ask: Ask, project: Path, program: str, arguments: tuple[str, ...]
) -> None:
    names = ("qfox", "architect", "judge", "ip-172-31-25-81", "netcup-router", "racknerd-510bd9c")
    (project / "status.json").write_text(json.dumps({**NO_PEERS, "Peer": peers(*names)}))
    rewrite("inventory.py", "@tailscale/architect", "@tailscale/architekt")(project)
    ended = ask(*arguments, program=program)
    assert ended["exit_code"] == 1
    assert "architekt: no machine of the tailnet has this name. Did you mean architect?" in ended["stderr"]
    assert "Connecting" not in ended["stderr"]


def test_a_name_with_another_number_is_another_machine(ask: Ask, project: Path) -> None:
    (project / "status.json").write_text(json.dumps({**NO_PEERS, "Peer": peers("racknerd-511bd9c")}))
    assert "Connecting to hosts" in ask(*TRAIN, program="pyinfra")["stderr"]


def test_what_the_command_line_overrides_is_looked_at(ask: Ask) -> None:
    said = ask(*TRAIN, "--data", "worker_port=80", program="pyinfra")["stderr"]
    assert "group_data: worker_port: wrong value (found 80" in said
    said = ask(*TRAIN, "--data", "worker_port", program="pyinfra")["stderr"]
    assert "--data worker_port: says no value" in said


def test_a_deploy_that_python_cannot_read_is_named_with_its_line(ask: Ask, project: Path) -> None:
    write("deploys/validate.py", b"x = 1\ny = (\n")(project)
    ended = ask(*TRAIN, program="pyinfra")
    assert ended["exit_code"] == 1
    assert "deploys/validate.py, line 2: cannot be read: '(' was never closed" in ended["stderr"]


def test_stopping_needs_no_templates(ask: Ask, project: Path) -> None:
    shutil.rmtree(project / "templates")
    said = ask("-y", "inventory.py", "deploys/stop.py", program="pyinfra")["stderr"]
    assert "templates" not in said
    assert "Connecting to hosts" in said


def test_the_inventory_may_be_looked_at_without_a_tailnet(ask: Ask) -> None:
    ended = ask("inventory.py", "debug-inventory", program="pyinfra", status="none.json")
    assert ended["exit_code"] == 0, ended["stderr"]
