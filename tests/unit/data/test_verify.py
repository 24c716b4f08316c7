"""Verifying a folder: what is wrong is always found, what has not changed is not read again."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tailtrain.data import verify

if TYPE_CHECKING:
    from pathlib import Path

CONTENTS = [f"chunk {number}".encode() * 1000 for number in range(4)]
WANTED = {hashlib.sha256(content).hexdigest(): len(content) for content in CONTENTS}
FIRST = hashlib.sha256(CONTENTS[0]).hexdigest()
CLEAN: verify.Findings = {"missing": [], "damaged": {}, "extra": [], "hashed": 0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four right files, verified and remembered, with a short time to settle."""
    monkeypatch.setattr(verify, "SETTLED_NS", 50_000_000)
    for name, content in zip(WANTED, CONTENTS, strict=True):
        (tmp_path / name).write_bytes(content)
    time.sleep(0.06)
    verify.examine(str(tmp_path), WANTED)
    return tmp_path


def test_unchanged_files_are_not_read_again(folder: Path) -> None:
    assert verify.examine(str(folder), WANTED) == CLEAN


def test_thorough_reads_everything(folder: Path) -> None:
    assert verify.examine(str(folder), WANTED, thorough=True)["hashed"] == sum(WANTED.values())


def test_a_flipped_bit_with_the_same_size_and_time_is_found(folder: Path) -> None:
    path = folder / FIRST
    before = path.stat()
    content = bytearray(CONTENTS[0])
    content[5] ^= 1
    with path.open("r+b") as stream:
        stream.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )
    assert verify.examine(str(folder), WANTED)["damaged"] == {FIRST: "has other content than its name says"}


def test_truncated_swapped_and_missing_files_are_found(folder: Path) -> None:
    names = list(WANTED)
    os.truncate(folder / names[0], 5)
    content = (folder / names[2]).read_bytes()
    (folder / names[1]).unlink()
    (folder / names[1]).write_bytes(content)
    (folder / names[2]).unlink()
    (folder / names[3]).unlink()
    (folder / names[3]).symlink_to(folder / names[0])
    assert verify.examine(str(folder), WANTED) == {
        "missing": [names[2]],
        "damaged": {
            names[0]: f"has 5 bytes instead of {WANTED[names[0]]}",
            names[1]: "has other content than its name says",
            names[3]: "is not a regular file",
        },
        "extra": [],
        "hashed": 0,
    }


def test_a_file_put_back_as_it_was_is_right_again(folder: Path) -> None:
    (folder / FIRST).unlink()
    assert verify.examine(str(folder), WANTED)["missing"] == [FIRST]
    (folder / FIRST).write_bytes(CONTENTS[0])
    assert verify.examine(str(folder), WANTED) == {**CLEAN, "hashed": len(CONTENTS[0])}


def test_a_file_that_changed_just_before_it_was_hashed_is_hashed_again(folder: Path) -> None:
    """A second write in the same tick of the clock would leave the same times."""
    (folder / FIRST).write_bytes(CONTENTS[0])
    assert verify.examine(str(folder), WANTED)["hashed"] == len(CONTENTS[0])
    assert verify.examine(str(folder), WANTED)["hashed"] == len(CONTENTS[0])
    time.sleep(0.06)
    verify.examine(str(folder), WANTED)
    assert verify.examine(str(folder), WANTED) == CLEAN


def test_extra_files_are_named_but_hidden_ones_are_not(folder: Path) -> None:
    (folder / "stranger").touch()
    (folder / ".tmp-1-chunk").touch()
    assert verify.examine(str(folder), WANTED) == {**CLEAN, "extra": ["stranger"]}


def test_looking_for_less_forgets_nothing(folder: Path) -> None:
    assert verify.examine(str(folder), {FIRST: WANTED[FIRST]})["hashed"] == 0
    assert verify.examine(str(folder), WANTED) == CLEAN


@pytest.mark.parametrize(
    "record",
    ["", "[]", "{}", '{"format": 2}', '{"format": 1, "files": {"a": "b"}}', '{"format": 1, "files": 3}'],
)
def test_a_damaged_memory_only_costs_time(folder: Path, record: str) -> None:
    (folder / verify.RECORD).write_text(record)
    assert verify.examine(str(folder), WANTED)["hashed"] == sum(WANTED.values())


def test_where_the_folder_is_missing_everything_is(tmp_path: Path) -> None:
    assert verify.examine(str(tmp_path / "none"), WANTED)["missing"] == sorted(WANTED)


def test_the_source_alone_runs_in_a_plain_python(folder: Path) -> None:
    """As a probe embeds it."""
    assert verify.__file__
    with open(verify.__file__, encoding="utf-8") as stream:  # noqa: PTH123 - the module's own text
        source = stream.read()
    ask = f"\nprint(json.dumps(examine({str(folder)!r}, {WANTED!r})))"
    run = subprocess.run(
        [sys.executable, "-I", "-"], input=source + ask, capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == {**CLEAN, "hashed": sum(WANTED.values())}, "not settled for two seconds"


def test_a_thousand_unchanged_files_take_milliseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "SETTLED_NS", 0)
    wanted = {}
    for number in range(1000):
        content = str(number).encode()
        wanted[hashlib.sha256(content).hexdigest()] = len(content)
        (tmp_path / hashlib.sha256(content).hexdigest()).write_bytes(content)
    verify.examine(str(tmp_path), wanted)
    started = time.process_time()
    assert verify.examine(str(tmp_path), wanted) == CLEAN
    assert time.process_time() - started < 0.2
