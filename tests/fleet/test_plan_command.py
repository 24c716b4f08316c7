"""What `tailtrain plan` leaves behind: a file for its owner alone, and an exit code."""

from __future__ import annotations

import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailtrain.cli import main
from tailtrain.commands.files import write_text
from tailtrain.commands.plan import OWNER_ALONE, exit_code
from tailtrain.errors import DeclarationError
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.documents.plan import decode, encode
from tailtrain.planning.observed import LockHolder
from tests.plans.situations import Situation


def test_a_saved_plan_is_for_its_owner_alone_and_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("an older one")
    path.chmod(0o644)
    document = document_of(Situation().plan())
    write_text(path, encode(document).decode(), mode=OWNER_ALONE)
    assert decode(path.read_bytes()) == document
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_plan_that_cannot_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "plan.json"
    folder.mkdir()
    (folder / "x").touch()
    with pytest.raises(DeclarationError, match="cannot be written"):
        write_text(folder, "{}", mode=OWNER_ALONE)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_is_not_there_is_said_before_any_host_is_asked(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["plan", "--out", str(tmp_path / "nowhere" / "plan.json")])
    assert result.exit_code == 1
    assert "no such folder" in result.output


def test_the_exit_code_says_what_stands_most_in_the_way() -> None:
    idle, fresh = Situation().applied().plan(), Situation().plan()
    away = Situation().applied().unreachable("judge", "no answer").plan()
    lock = LockHolder("t", "ann@desk", "noon", "")
    plans = (idle, fresh, away, replace(away, lock=lock), replace(idle, lock=lock))
    assert [exit_code(document_of(plan)) for plan in plans] == [0, 2, 3, 4, 4]


def test_a_secret_in_a_wrong_setting_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "inventory.py").write_text(
        'primary = [("@local", {"cores": 1, "ram_gb": 4, "storage_gb": 9})]\n'
    )
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "all.py").write_text('storage_backend = "hf_QXZQXZQXZ"\n')
    command = [str(Path(sys.executable).with_name("tailtrain")), "config", "--json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "storage_backend" in ended.stderr
    assert "***" in ended.stderr
    assert "QXZ" not in ended.stdout + ended.stderr
