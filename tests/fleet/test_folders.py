"""The program that makes and removes folders: run as on a host, in a plain python3, on a tree of its own."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailtrain.data import send
from tailtrain.fleet import folders_program

US = getpass.getuser()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of ours as the account could leave it, and one of somebody else beside it."""
    (tmp_path / "ours" / "runs" / "a").mkdir(parents=True)
    (tmp_path / "ours" / "runs" / "a" / "model").write_text("model")
    (tmp_path / "cron.d" / "a").mkdir(parents=True, mode=0o700)
    (tmp_path / "cron.d" / "a" / "job").write_text("theirs")
    (tmp_path / "cron.d").chmod(0o700)
    return tmp_path / "ours"


def ask(root: Path, *, make: list[tuple[Path, str]] | None = None, remove: list[str] | None = None) -> Any:
    request = {
        "roots": [str(root)],
        "make": [[str(path), US, mode] for path, mode in make or []],
        "remove": remove or [],
    }
    done = subprocess.run(
        ["sh", "-c", f"umask 077; {send.ask_command(sys.executable)}"],
        input=send.question([folders_program], request),
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""
    return send.answer(done.stdout.decode())["refused"]


def test_folders_are_made_and_those_that_are_there_are_set_right(root: Path) -> None:
    (root / "runs").chmod(0o777)
    assert ask(root, make=[(root, "0755"), (root / "runs", "0750"), (root / "new" / "deep", "0700")]) == ""
    assert [oct(path.stat().st_mode)[-4:] for path in (root, root / "runs", root / "new" / "deep")] == [
        "0755",
        "0750",
        "0700",
    ]
    assert oct((root / "new").stat().st_mode)[-4:] == "0755", "whatever the mask of the login"
    assert (root / "runs" / "a" / "model").read_text() == "model"


@pytest.mark.parametrize("below", ["", "deep"])
def test_no_folder_is_made_or_changed_through_a_link(root: Path, below: str) -> None:
    (root / "manifests").symlink_to(root.parent / "cron.d")
    refused = ask(root, make=[(root / "manifests" / below, "0755")])
    assert refused == f"{root / 'manifests'} is a symbolic link to '{root.parent / 'cron.d'}'"
    assert oct((root.parent / "cron.d").stat().st_mode)[-4:] == "0700"
    assert [path.name for path in (root.parent / "cron.d").iterdir()] == ["a"]


def test_a_file_in_the_place_of_a_folder_is_named(root: Path) -> None:
    (root / "chunks").write_text("a file")
    assert ask(root, make=[(root / "chunks", "0755")]) == f"{root / 'chunks'} is no folder"


def test_what_is_removed_is_gone_and_links_in_it_are_not_followed(root: Path) -> None:
    (root / "runs" / "a" / "link").symlink_to(root.parent / "cron.d")
    (root / "runs" / "b").symlink_to(root.parent / "cron.d")
    os.mkfifo(root / "runs" / "c")
    odd = os.fsencode(root / "runs") + b"/\xff\xfe"
    Path(os.fsdecode(odd)).write_text("a name that is no text")
    assert ask(root, remove=[f"{root}/runs/{name}" for name in "abcd"] + [os.fsdecode(odd)]) == ""
    assert list((root / "runs").iterdir()) == []
    assert (root.parent / "cron.d" / "a" / "job").read_text() == "theirs"


def test_nothing_is_removed_through_a_linked_folder(root: Path) -> None:
    (root / "runs").rename(root / "before")
    (root / "runs").symlink_to(root.parent / "cron.d")
    assert "runs is a symbolic link to" in ask(root, remove=[f"{root}/runs/a"])
    assert (root.parent / "cron.d" / "a" / "job").exists()


def test_nothing_is_removed_outside_or_all_of_it(root: Path) -> None:
    for path in (root.parent / "cron.d", root / ".." / "cron.d" / "a", root, f"{root}-beside/x"):
        assert ask(root, remove=[str(path)]) != ""
    assert (root.parent / "cron.d" / "a" / "job").exists()
    assert (root / "runs" / "a" / "model").exists()


def test_what_is_not_there_is_removed_already(root: Path) -> None:
    assert ask(root, remove=[f"{root}/nowhere/a", f"{root}/runs/z"]) == ""


def test_an_account_that_is_not_there_is_named(root: Path) -> None:
    request = {"roots": [str(root)], "make": [[str(root), "nobody-of-this-name", "0755"]], "remove": []}
    done = subprocess.run(
        ["sh", "-c", send.ask_command(sys.executable)],
        input=send.question([folders_program], request),
        capture_output=True,
        check=True,
    )
    assert "nobody-of-this-name" in json.dumps(send.answer(done.stdout.decode()))
