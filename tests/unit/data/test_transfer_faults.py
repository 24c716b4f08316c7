"""Transfers that are killed, and folders that somebody else has been at: what is wrong is sent anew.

The receiver runs as on a node, in a plain python3 fed from its standard input. Full disks, read-only file
systems, damaged and swapped files are in `test_transfer.py` too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.data import send, verify
from tailtrain.data.send import SentFile, Transfer

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
RNG = random.Random(5)  # noqa: S311 - file contents, no secret
CONTENTS = [RNG.randbytes(size) for size in (1, 100_000, 100_000, 1_500_000)]
FILES = tuple(
    SentFile(digest, digest, len(content))
    for content in CONTENTS
    for digest in [hashlib.sha256(content).hexdigest()]
)
BY_NAME = {file.name: content for file, content in zip(FILES, CONTENTS, strict=True)}
TINY, FIRST, SECOND, LARGE = (file.name for file in FILES)


def stream(folder: Path) -> bytes:
    pieces = send.stream(Transfer(str(folder), FILES), lambda file: io.BytesIO(BY_NAME[file.name]))
    return b"".join(pieces)


def receive(folder: Path, before: str = "", **options: Any) -> dict[str, Any]:
    """Send everything; the receiver's answer. `before` is done in a view of the mounts of its own."""
    argv = send.command(sys.executable)
    shell = ["unshare", "-m", "sh", "-ec", f"{before}\n{argv}"] if before else ["sh", "-c", argv]
    run = subprocess.run(shell, input=stream(folder), capture_output=True, check=False, **options)
    answer: dict[str, Any] = json.loads(run.stdout)
    assert answer["ok"] == (run.returncode == 0)
    return answer


def whole(folder: Path) -> set[str]:
    """The names that bear what they should; nothing else may bear a name."""
    names = {path.name for path in folder.iterdir() if path.name[0] != "."}
    assert all((folder / name).read_bytes() == BY_NAME[name] for name in names)
    return names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "chunks"
    place.mkdir()
    return place


BYTES = sum(map(len, CONTENTS))
BOUNDARIES = {
    "nothing": None,
    "half of the program": -BYTES - 10_000,
    "before the first byte of a file": -BYTES,
    "after the first file": 1 - BYTES,
    "one byte into the second": 2 - BYTES,
    "one byte before its end": 100_000 - BYTES,
    "at its end": 100_001 - BYTES,
    "one byte later": 100_002 - BYTES,
    "in the middle of the last": -750_000,
    "one byte before the end": -1,
}


@pytest.mark.parametrize("at", BOUNDARIES.values(), ids=BOUNDARIES)
def test_killed_at_a_boundary_the_next_run_sends_only_what_is_missing(folder: Path, at: int | None) -> None:
    raw = stream(folder)
    sent = raw[:at] if at else b""
    complete = {
        file.name for number, file in enumerate(FILES) if ends(number) <= len(sent) - len(raw) + BYTES
    }
    with subprocess.Popen(shlex.split(send.command(sys.executable)), stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(sent)
        process.stdin.flush()
        deadline = time.monotonic() + 20
        while whole(folder) != complete and time.monotonic() < deadline:
            time.sleep(0.005)
        process.kill()
    assert whole(folder) == complete
    answer = receive(folder)
    assert (answer["skipped"], answer["received"]) == (len(complete), len(FILES) - len(complete))
    assert whole(folder) == set(BY_NAME)
    assert not list(folder.glob(f"{verify.TEMPORARY}*"))


def ends(number: int) -> int:
    """The byte of all files' bytes at which this file ends."""
    return sum(map(len, CONTENTS[: number + 1]))


def test_two_files_that_changed_places_are_both_sent_again(folder: Path) -> None:
    receive(folder)
    (folder / FIRST).rename(folder / ".aside")
    (folder / SECOND).rename(folder / FIRST)
    (folder / ".aside").rename(folder / SECOND)
    answer = receive(folder)
    assert (answer["received"], answer["skipped"], answer["bytes"]) == (2, 2, 200_000)
    assert whole(folder) == set(BY_NAME)


def test_a_hard_link_in_the_place_of_a_file_is_replaced_and_what_it_leads_to_is_not_written(
    folder: Path, tmp_path: Path
) -> None:
    receive(folder)
    precious = tmp_path / "precious"
    precious.write_bytes(bytes(100_000))
    (folder / FIRST).unlink()
    (folder / FIRST).hardlink_to(precious)
    assert receive(folder)["received"] == 1
    assert whole(folder) == set(BY_NAME)
    assert precious.read_bytes() == bytes(100_000)


def test_a_link_in_the_place_of_a_file_is_replaced_even_where_it_leads_to_the_right_content(
    folder: Path, tmp_path: Path
) -> None:
    receive(folder)
    (folder / LARGE).rename(tmp_path / "elsewhere")
    (folder / LARGE).symlink_to(tmp_path / "elsewhere")
    assert receive(folder)["received"] == 1
    assert not (folder / LARGE).is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == BY_NAME[LARGE]


def test_a_flipped_bit_with_the_old_size_and_time_is_sent_again(folder: Path) -> None:
    receive(folder)
    path = folder / LARGE
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(bytes([CONTENTS[3][1000] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert receive(folder)["bytes"] == len(CONTENTS[3])
    assert whole(folder) == set(BY_NAME)


def test_what_is_of_others_in_the_folder_is_not_touched(folder: Path) -> None:
    (folder / "0").write_bytes(b"somebody's")
    (folder / ".hidden").write_bytes(b"somebody's too")
    assert receive(folder)["ok"]
    assert (folder / "0").read_bytes() == b"somebody's"
    assert (folder / ".hidden").read_bytes() == b"somebody's too"


@as_root
def test_a_folder_that_is_mounted_read_only_is_named_and_what_is_there_is_kept(folder: Path) -> None:
    receive(folder)
    (folder / FIRST).unlink()
    place = shlex.quote(str(folder))
    answer = receive(folder, f"mount --bind {place} {place}\nmount -o remount,bind,ro {place}")
    assert not answer["ok"]
    assert "the file system is read-only" in answer["error"]
    assert whole(folder) == set(BY_NAME) - {FIRST}


@as_root
def test_where_nothing_is_missing_a_read_only_folder_is_no_fault(folder: Path) -> None:
    receive(folder)
    place = shlex.quote(str(folder))
    answer = receive(folder, f"mount --bind {place} {place}\nmount -o remount,bind,ro {place}")
    assert (answer["ok"], answer["skipped"], answer["bytes"]) == (True, len(FILES), 0)
