"""Files are the old ones or the new ones."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

import pytest

from tailtrain.worker.files import (
    append_line,
    cannot_write,
    canonical_json,
    clear_unpublished,
    publish_directory,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_writing_replaces_whole_files_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "status.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two", mode=0o644)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in path.parent.iterdir()] == ["status.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_line_cut_short_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    append_line(path, b'{"round":0}\n')
    path.write_bytes(path.read_bytes() + b'{"rou')
    append_line(path, b'{"round":1}\n')
    assert path.read_bytes().splitlines() == [b'{"round":0}', b'{"rou', b'{"round":1}']


def test_a_directory_appears_whole_and_replaces_one(tmp_path: Path) -> None:
    path = tmp_path / "round-000001"
    publish_directory(path, [("a", b"1"), ("b", b"2")])
    publish_directory(path, [("a", b"3")])
    assert {file.name: file.read_bytes() for file in path.iterdir()} == {"a": b"3"}
    assert [file.name for file in tmp_path.iterdir()] == ["round-000001"]


def test_equal_values_give_equal_bytes() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None]}) == b'{"a":[1.5,null],"b":1}\n'
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({"loss": float("nan")})


def test_a_directory_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "round-000001"
    publish_directory(path, [("a", b"1")])

    def files() -> Iterator[tuple[str, bytes]]:
        yield "a", b"2"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        publish_directory(path, files())
    assert {file.name: file.read_bytes() for file in path.iterdir()} == {"a": b"1"}
    assert [file.name for file in tmp_path.iterdir()] == ["round-000001"]


def test_what_killed_processes_left_is_removed_and_one_taken_away_comes_back(tmp_path: Path) -> None:
    for name in ("round-000001", ".round-000001.old", ".round-000002.old", ".round-000003.99", ".other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(name)
    clear_unpublished(tmp_path, "round-")
    left = {path.parent.name: path.read_text() for path in tmp_path.glob("*/weights")}
    assert left == {
        "round-000001": "round-000001",
        "round-000002": ".round-000002.old",
        ".other": ".other",
    }


def test_a_folder_that_cannot_be_written_is_told_with_its_room(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    at = tmp_path / "not" / "yet"
    told = str(cannot_write("x cannot be saved", host="judge", folder=at, error=error, fix="Make room"))
    assert re.fullmatch(
        rf"judge: {at}: x cannot be saved \(found No space left on device, [\d,]+ bytes free\). Make room",
        told,
    )
