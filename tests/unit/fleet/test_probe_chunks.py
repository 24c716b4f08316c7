"""What the probe says of a folder of chunks."""

from __future__ import annotations

import getpass
import hashlib
from typing import TYPE_CHECKING

from tailtrain.fleet import probe_program

if TYPE_CHECKING:
    from pathlib import Path

RIGHT, WRONG = b"what the name says", b"something else"
NAME = hashlib.sha256(RIGHT).hexdigest()
OTHER = hashlib.sha256(b"what another name says").hexdigest()


def test_a_chunk_vouches_for_itself(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(RIGHT)
    (tmp_path / OTHER).write_bytes(WRONG)
    (tmp_path / "notes.txt").write_bytes(b"here by mistake")
    (tmp_path / ".tmp-1").write_bytes(b"being written")
    found = probe_program.chunks(str(tmp_path), getpass.getuser())
    assert found["sizes"] == {NAME: len(RIGHT), OTHER: len(WRONG), "notes.txt": 15}
    assert found["damaged"] == {OTHER: "has other content than its name says"}


def test_where_nothing_is_nothing_is_found(tmp_path: Path) -> None:
    assert probe_program.chunks(str(tmp_path / "nowhere"), "nobody") == {"sizes": {}, "damaged": {}}
