"""`tailtrain prune`: this machine lets go of what nothing declared stands for any more."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailtrain.data.cache import ensure_dataset
from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Prune = Callable[..., str]

OLD = time.time() - 40 * 86_400


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that declares one data set, which is cut, and has another one cut long ago."""
    for folder in ("templates", "locks", "group_data"):
        shutil.copytree(PROJECT / folder, tmp_path / folder)
    shutil.copy(PROJECT / "inventory.py", tmp_path)
    declaration = tmp_path / "group_data" / "all.py"
    declaration.write_text(declaration.read_text() + 'datasets = {"natural": "now.parquet"}\n')
    for name in ("now", "then"):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"text": [f"{name} {number}" for number in range(300)]}), path)
        ensure_dataset(path, "natural", tmp_path / ".tailtrain" / "datasets", heldout_fraction=0.02)
    for entry in (tmp_path / ".tailtrain" / "datasets" / "index").glob("*"):
        os.utime(entry, (OLD, OLD))
    return tmp_path


@pytest.fixture
def prune(ask_command: Callable[..., dict[str, Any]], project: Path) -> Prune:
    def run(*options: str) -> str:
        ended = ask_command(folder=str(project), arguments=["prune", *options])
        assert ended["exit_code"] == 0, ended["stderr"]
        return str(ended["stdout"])

    return run


def old(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    for each in (path, path.parent):
        os.utime(each, (OLD, OLD))
    return path


def test_a_data_set_that_is_not_declared_goes_and_the_declared_one_stays(prune: Prune, project: Path) -> None:
    manifests = project / ".tailtrain" / "datasets" / "manifests"
    said = prune("--dry-run")
    assert "would be removed: 1 cut data set (" in said
    assert "Would free " in said
    assert len(list(manifests.iterdir())) == 2
    assert prune().startswith("removed: 1 cut data set (")
    assert len(list(manifests.iterdir())) == 1
    assert prune() == "Nothing to remove.\n"


def test_fetched_models_of_other_runs_go_and_reports_stay(prune: Prune, project: Path) -> None:
    model = old(project / ".tailtrain" / "runs" / ("a" * 16) / "final" / "model.safetensors", b"x" * 5000)
    report = old(model.parents[1] / "report.json", b"{}")
    os.utime(model.parent, (OLD, OLD))
    assert "removed: 1 fetched model (1 file, 5.0 kB)" in prune()
    assert not model.exists()
    assert report.exists()


def test_keys_of_hosts_that_are_gone_go(prune: Prune, project: Path) -> None:
    gone = old(project / ".tailtrain" / "identities" / "oldbox.key", b"key")
    ours = old(project / ".tailtrain" / "identities" / "judge.key", b"key")
    assert "removed: 1 unused peer key (1 file, 0.0 kB)" in prune()
    assert not gone.exists()
    assert ours.exists()


def test_how_old_is_a_choice(prune: Prune, project: Path) -> None:
    assert prune("--older-than", "60") == "Nothing to remove.\n"
    gone = project / ".tailtrain" / "identities" / "newbox.key"
    gone.parent.mkdir()
    gone.write_bytes(b"key")
    prune()
    assert gone.exists()
    prune("--older-than", "0")
    assert not gone.exists()


def test_a_project_that_never_cut_anything_has_nothing_to_remove(prune: Prune, project: Path) -> None:
    shutil.rmtree(project / ".tailtrain")
    assert prune() == "Nothing to remove.\n"
