"""The command line as a person meets it: quick help, and one sentence for each mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tailtrain import __version__
from tailtrain.cli import main
from tailtrain.spec import from_lean_json, lean_default_config, to_lean_json
from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    Run = Callable[..., "Ended"]

TAILTRAIN = Path(sys.executable).with_name("tailtrain")
COMMANDS = {
    *("init", "devices", "add", "invite", "policy"),
    "plan",
    "apply",
    "unlock",
    "prune",
    "status",
    "logs",
    "report",
    "fetch",
    "destroy",
    "stop",
    "resume",
    "config",
    "dataset",
    "lab",
}
INVENTORY = """
primary = [("@tailscale/qfox", {"cores": 3, "ram_gb": 8, "storage_gb": 100})]
compute = [("@tailscale/judge", {"cores": 1, "ram_gb": 4, "storage_gb": 100})]
"""
TRAINING = """
coordination_protocol = "decentralized"
storage_backend = "local"
resource_allocation = "declared_cores"
load_balancing = "static"
datasets = {"coding": "data/code.parquet", "natural": "data/prose.parquet"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two hosts and two data sets, the one of code declared first."""
    (tmp_path / "inventory.py").write_text(INVENTORY)
    for folder in ("group_data", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "group_data" / "all.py").write_text(TRAINING)
    for name, records in (("prose", 40), ("code", 8)):
        table = pa.table({"text": [f"record {number} of {name}" for number in range(records)]})
        pq.write_table(table, tmp_path / "data" / f"{name}.parquet")
    return tmp_path


@dataclass(frozen=True)
class Ended:
    """A command that came to its end."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(ask_command: Callable[..., dict[str, Any]]) -> Run:
    """Run a command in a folder, in a process of its own."""
    return lambda folder, *arguments: Ended(**ask_command(folder=str(folder), arguments=arguments))


def one_sentence(result: Ended | Result, *words: str) -> None:
    """The command failed as it should: exit code 1, one line, no traceback."""
    lines = result.stderr.splitlines()
    assert result.exit_code == 1, result.stderr
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    for word in words:
        assert word in lines[0]


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    listed = {
        line.split()[0] for line in result.output.partition("Commands:")[2].splitlines() if line.strip()
    }
    assert listed == COMMANDS


def test_help_is_instant(run: Run) -> None:
    """Half a second of processor time: what a person waits for on an idle machine."""
    started = os.times()
    ended = subprocess.run([TAILTRAIN, "--help"], capture_output=True, check=False, cwd=PROJECT)
    assert ended.returncode == 0
    now = os.times()
    used = now.children_user + now.children_system - started.children_user - started.children_system
    assert used < 0.5


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_says_what_it_does(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {command}")


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(main, ["--version"]).output.endswith(f"{__version__}\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff\xfe", ""),
        (b"[]", ""),
        (b"{}", ""),
        (b"\x1b[2J", ""),
        (b"[" * 100_000, ""),
        (to_lean_json(lean_default_config()).replace('"cores":16', '"cores":-1').encode(), "cores"),
    ],
    ids=["empty", "cut", "no text", "a list", "an object", "escape", "deep", "negative"],
)
def test_a_bad_document_is_refused_in_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    result = CliRunner().invoke(main, ["config", "--read", str(path)])
    one_sentence(result, words)
    assert "\x1b[2J" not in result.stderr


def test_a_document_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    one_sentence(CliRunner().invoke(main, ["config", "--read", str(path)]), str(path), "No such file")


def test_a_document_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(to_lean_json(lean_default_config()))
    result = CliRunner().invoke(main, ["config", "--read", str(path), "--json"])
    assert from_lean_json(result.output) == lean_default_config()
    text = CliRunner().invoke(main, ["config", "--read", str(path)]).output
    assert "qfox" in text
    assert "Model Aggregation" in text


@pytest.mark.parametrize(
    "command", [["plan"], ["status"], ["logs"], ["report"], ["fetch", "out"], ["config"], ["destroy"]]
)
def test_a_missing_inventory_is_said(run: Run, tmp_path: Path, command: list[str]) -> None:
    one_sentence(run(tmp_path, *command), "inventory.py: no such inventory", "Name the file with --inventory")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("inventory.py", "primary = [(\n", "inventory.py, line 1: cannot be read"),
        ("group_data/all.py", "model = {\n", "group_data/all.py, line 1: cannot be read"),
        ("group_data/all.py", TRAINING + "modle = {}\n", "Did you mean model?"),
        ("group_data/all.py", TRAINING.replace("prose", "none"), "none.parquet"),
    ],
)
def test_mistakes_in_the_project_are_no_tracebacks(
    run: Run, project: Path, file: str, text: str, words: str
) -> None:
    (project / file).write_text(text)
    one_sentence(run(project, "config", "--masked"), words)


def test_an_inventory_may_import_what_lies_beside_it(run: Run, project: Path) -> None:
    (project / "sizes.py").write_text('SMALL = {"cores": 1, "ram_gb": 4, "storage_gb": 100}\n')
    text = "from sizes import SMALL\n" + INVENTORY.replace(
        '{"cores": 1, "ram_gb": 4, "storage_gb": 100}', "SMALL"
    )
    (project / "inventory.py").write_text(text)
    assert run(project, "config", "--masked").exit_code == 0


def test_the_declared_configuration_is_one_value_of_the_specification(run: Run, project: Path) -> None:
    result = run(project, "config", "--json", "--masked")
    assert result.exit_code == 0, result.stderr
    value = from_lean_json(result.stdout)
    # Prose first, code second, whatever the order of the declaration; bytes to the nearest megabyte.
    assert [(d.file, d.records, d.size_mb) for d in value.data_distribution] == [
        ("prose.parquet", 40, 0),
        ("code.parquet", 8, 0),
    ]
    shares = [
        (given.natural_language_shard_size, given.coding_language_shard_size)
        for _, given in value.node_assignments
    ]
    assert shares == [(30, 6), (10, 2)]
    assert "100.x.x.x" in result.stdout


@pytest.mark.parametrize(
    ("declared", "files", "shares"),
    [
        ('{"coding": "data/code.parquet"}', ["code.parquet"], [(0, 6), (0, 2)]),
        ('{"natural": "data/prose.parquet"}', ["prose.parquet"], [(30, 0), (10, 0)]),
        ('{"maths": "data/code.parquet"}', ["code.parquet"], [(6, 0), (2, 0)]),
        (
            '{"coding": "data/code.parquet", "maths": "data/prose.parquet"}',
            ["prose.parquet", "code.parquet"],
            [(30, 6), (10, 2)],
        ),
    ],
)
def test_each_domain_has_its_place(
    run: Run, project: Path, declared: str, files: list[str], shares: list[tuple[int, int]]
) -> None:
    text = "\n".join(line for line in TRAINING.splitlines() if not line.startswith("datasets"))
    (project / "group_data" / "all.py").write_text(f"{text}\ndatasets = {declared}\n")
    result = run(project, "config", "--json", "--masked")
    value = from_lean_json(result.stdout)
    assert [data.file for data in value.data_distribution] == files
    assert [
        (given.natural_language_shard_size, given.coding_language_shard_size)
        for _, given in value.node_assignments
    ] == shares


def test_three_domains_are_more_than_the_form_has_places_for(run: Run, project: Path) -> None:
    files = dict.fromkeys(("natural", "coding", "maths"), "data/code.parquet")
    text = "\n".join(line for line in TRAINING.splitlines() if not line.startswith("datasets"))
    (project / "group_data" / "all.py").write_text(f"{text}\ndatasets = {files}\n")
    one_sentence(run(project, "config", "--masked"), "places for two data sets")


def test_a_report_needs_a_run_and_a_damaged_one_is_named(run: Run, project: Path) -> None:
    one_sentence(run(project, "report"), "no run has been validated from here")
    folder = project / ".tailtrain" / "runs" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text('{"run_id": ')
    one_sentence(run(project, "report"), "report.json: is damaged")


def test_the_newest_report_is_shown(run: Run, project: Path) -> None:
    for age, run_id in ((100, "a" * 16), (0, "b" * 16)):
        folder = project / ".tailtrain" / "runs" / run_id
        folder.mkdir(parents=True)
        report = {
            "run_id": run_id,
            "manifest": {"parameters": 5, "contributions": []},
            "rounds": [],
            "validation": {},
            "guarantees": [],
            "emulated": [],
        }
        path = folder / "report.json"
        path.write_text(json.dumps(report))
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert f"Run {'b' * 16}: 5 parameters" in run(project, "report").stdout


def test_another_inventory_can_be_named(run: Run, project: Path) -> None:
    result = run(project, "config", "--inventory", "elsewhere.py")
    one_sentence(result, "elsewhere.py: no such inventory")
