"""Identities that are kept until their nodes have them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from tailtrain.errors import FleetError
from tailtrain.fleet.identity import peer_id_of
from tailtrain.fleet.keyring import forget_identity, kept_identity

if TYPE_CHECKING:
    from pathlib import Path


def test_a_dry_run_and_the_deploy_after_it_name_the_same_peer(tmp_path: Path) -> None:
    key, peer_id = kept_identity(tmp_path / "keys", "judge")
    assert kept_identity(tmp_path / "keys", "judge") == (key, peer_id)
    assert peer_id_of(key) == peer_id
    assert kept_identity(tmp_path / "keys", "architect")[1] != peer_id


def test_nobody_else_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept_identity(tmp_path / "work" / "keys", "judge")
    finally:
        os.umask(before)
    folder = tmp_path / "work" / "keys"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()] == [
        ("judge.key", 0o600)
    ]


def test_a_key_that_was_cut_off_before_is_made_again(tmp_path: Path) -> None:
    beside = tmp_path / ".judge.new"
    beside.write_bytes(b"half of a k")
    beside.chmod(0o600)
    key, _ = kept_identity(tmp_path, "judge")
    assert (tmp_path / "judge.key").read_bytes() == key
    assert not beside.exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x08\x00\x12\x03abc", b"\x08\x00\x12\xff"])
def test_a_damaged_key_is_an_error_that_names_node_and_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "judge.key").write_bytes(content)
    with pytest.raises(FleetError) as caught:
        kept_identity(tmp_path, "judge")
    assert caught.value.host == "judge"
    assert caught.value.field == str(tmp_path / "judge.key")
    assert (tmp_path / "judge.key").read_bytes() == content


def test_it_is_forgotten_once_the_node_has_it(tmp_path: Path) -> None:
    kept_identity(tmp_path, "judge")
    forget_identity(tmp_path, "judge")
    forget_identity(tmp_path, "judge")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_hold_identities_is_named(tmp_path: Path) -> None:
    (tmp_path / "identities").write_text("no folder")
    with pytest.raises(FleetError, match=r"judge: .*/identities/judge.key: .*Not a directory"):
        kept_identity(tmp_path / "identities", "judge")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FleetError, match=r"judge: .*/loop"):
        kept_identity(tmp_path / "loop", "judge")
