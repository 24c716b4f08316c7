"""Sending and receiving: the receiver runs as on a node, in a plain python3 fed from its standard input."""

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.data import folder, receive, send, verify
from tailtrain.data.send import Receipt, SentFile, Transfer
from tailtrain.errors import DataError, TransferError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
RNG = random.Random(3)  # noqa: S311 - file contents, no secret
CONTENTS = [RNG.randbytes(size) for size in (0, 1, 70_000, 300_000, 2_500_000)]


def sent(content: bytes) -> SentFile:
    digest = hashlib.sha256(content).hexdigest()
    return SentFile(digest, digest, len(content))


BY_NAME = {sent(content).name: content for content in CONTENTS}


def opener(file: SentFile) -> io.BytesIO:
    return io.BytesIO(BY_NAME.get(file.name, b""))


@dataclass
class Node:
    """A folder, and a python3 that receives into it."""

    folder: Path
    python: str = sys.executable
    files: tuple[SentFile, ...] = field(default_factory=lambda: tuple(sent(content) for content in CONTENTS))

    def transfer(self, **options: Any) -> Transfer:
        return Transfer(str(self.folder), options.pop("files", self.files), **options)

    def feed(self, raw: bytes) -> tuple[int, dict[str, Any]]:
        """Give the receiver this input; its exit code and its answer."""
        shell = ["sh", "-c", send.command(self.python)]
        run = subprocess.run(shell, input=raw, capture_output=True, check=False)
        assert run.stderr == b""
        return run.returncode, json.loads(run.stdout)

    def send(self, **options: Any) -> tuple[int, dict[str, Any]]:
        return self.feed(b"".join(send.stream(self.transfer(**options), opener)))

    def names(self) -> set[str]:
        """Everything that stands there, without the record of what was verified."""
        return {path.name for path in self.folder.iterdir()} - {verify.RECORD}

    def check_what_is_there(self) -> None:
        """Whatever bears a name is whole."""
        for name in self.names():
            assert (self.folder / name).read_bytes() == BY_NAME[name]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    folder = tmp_path / "chunks"
    folder.mkdir()
    return Node(folder)


def find_python39() -> str | None:
    found = subprocess.run(["which", "python3.9"], capture_output=True, text=True, check=False)
    works = (
        found.returncode == 0
        and not subprocess.run(["python3.9", "-c", ""], capture_output=True, check=False).returncode
    )
    return "python3.9" if works else None


def test_files_arrive_whole_with_mode_and_owner(node: Node) -> None:
    code, answer = node.send(mode="0604", owner=None if os.geteuid() else "nobody")
    assert (code, answer["ok"], answer["received"], answer["skipped"]) == (0, True, 5, 0)
    assert answer["bytes"] == sum(map(len, CONTENTS))
    assert node.names() == set(BY_NAME)
    node.check_what_is_there()
    for name in BY_NAME:
        status = (node.folder / name).stat()
        assert status.st_mode & 0o7777 == 0o604
        if os.geteuid() == 0:
            assert status.st_uid == 65534


@pytest.mark.skipif(find_python39() is None, reason="no python3.9 here")
def test_the_oldest_supported_python_receives_too(node: Node) -> None:
    node.python = find_python39() or ""
    assert node.send()[0] == 0
    node.check_what_is_there()


def test_what_is_there_and_right_is_left_alone(node: Node) -> None:
    node.send()
    before = {name: (node.folder / name).stat().st_ino for name in BY_NAME}
    code, answer = node.send()
    assert (code, answer["received"], answer["skipped"], answer["bytes"]) == (0, 0, 5, 0)
    assert {name: (node.folder / name).stat().st_ino for name in BY_NAME} == before


def test_what_was_received_need_not_be_read_again_to_verify_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.send()
    monkeypatch.setattr(verify, "SETTLED_NS", 0)
    wanted = {file.sha256: file.size for file in node.files}
    assert verify.examine(str(node.folder), wanted) == {
        "missing": [],
        "damaged": {},
        "extra": [],
        "hashed": 0,
    }


def test_what_is_damaged_is_replaced(node: Node) -> None:
    node.send()
    flipped, short, swapped = (node.files[index].name for index in (2, 3, 4))
    content = bytearray(BY_NAME[flipped])
    content[100] ^= 1
    (node.folder / flipped).write_bytes(content)
    os.truncate(node.folder / short, 10)
    (node.folder / swapped).unlink()
    (node.folder / swapped).symlink_to("/etc/hostname")
    code, answer = node.send()
    assert (code, answer["received"], answer["skipped"]) == (0, 3, 2)
    assert not (node.folder / swapped).is_symlink()
    node.check_what_is_there()


@pytest.mark.parametrize("seed", range(8))
def test_an_input_that_ends_at_any_byte_leaves_only_whole_files(node: Node, seed: int) -> None:
    raw = b"".join(send.stream(node.transfer(), opener))
    header = len(raw) - sum(map(len, CONTENTS))
    at = header + random.Random(seed).randrange(len(raw) - header)  # noqa: S311 - a repeatable place
    code, answer = node.feed(raw[:at])
    assert (code, answer["ok"]) == (1, False)
    assert "the sender stopped early" in answer["error"]
    assert not [name for name in node.names() if name.startswith(verify.TEMPORARY)]
    node.check_what_is_there()
    assert len(node.names()) == answer["received"]
    assert node.send()[1]["skipped"] == answer["received"]


@pytest.mark.parametrize("seed", range(6))
def test_a_receiver_killed_at_any_moment_leaves_whole_files_and_the_next_run_the_rest(
    node: Node, seed: int
) -> None:
    raw = b"".join(send.stream(node.transfer(), opener))
    at = len(raw) - random.Random(seed).randrange(2_800_000)  # noqa: S311 - a repeatable place
    with subprocess.Popen(shlex.split(send.command(sys.executable)), stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(raw[:at])
        process.stdin.flush()
        time.sleep(0.02 * seed)
        process.kill()
    left = node.names()
    for name in left:
        if not name.startswith(verify.TEMPORARY):
            assert (node.folder / name).read_bytes() == BY_NAME[name]
    assert node.send()[0] == 0
    assert node.names() == set(BY_NAME), "temporary files are swept"
    node.check_what_is_there()


def test_bytes_that_changed_on_the_way_never_get_the_name(node: Node) -> None:
    raw = bytearray(b"".join(send.stream(node.transfer(), opener)))
    raw[-100] ^= 1
    code, answer = node.feed(bytes(raw))
    assert (code, answer["ok"], answer["received"]) == (1, False, 4)
    assert "not those that were announced" in answer["error"]
    assert answer["file"] == node.files[-1].name
    assert node.names() == {file.name for file in node.files[:-1]}


@pytest.mark.parametrize(
    "name",
    ["../up", "a/b", "/abs", ".hidden", "..", ".", "", "a\0b", "a\n", ".verified.json"],
)
def test_a_name_that_could_leave_the_folder_is_refused(node: Node, name: str) -> None:
    code, answer = node.send(files=(SentFile(name, "0" * 64, 0),))
    assert code == 1
    assert "not a name for a file here" in answer["error"]
    assert node.names() == set()


def test_a_manifest_may_be_sent_too(node: Node) -> None:
    content = b"{}\n"
    digest = hashlib.sha256(content).hexdigest()
    BY_NAME[f"{digest}.json"] = content
    try:
        code, _ = node.send(files=(SentFile(f"{digest}.json", digest, len(content)),))
        assert code == 0
        node.check_what_is_there()
    finally:
        del BY_NAME[f"{digest}.json"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "rw"}, "the mode is not octal"),
        ({"owner": "no-such-user"}, "no user 'no-such-user'"),
        ({"group": "no-such-group"}, "no group 'no-such-group'"),
        ({"files": (SentFile("a", "short", 1),)}, "SHA-256 or size"),
        ({"files": (SentFile("a", "0" * 64, -1),)}, "SHA-256 or size"),
        ({"reserve_bytes": 10**18}, "not enough space on the disk"),
    ],
)
def test_wrong_options_are_refused_before_the_first_byte(
    node: Node, options: dict[str, Any], message: str
) -> None:
    raw = b"".join(send.stream(node.transfer(**{**options, "files": ()}), opener))
    header = json.loads(raw.splitlines()[1])
    files = options.get("files", node.files)
    header["files"] = [{"name": file.name, "sha256": file.sha256, "size": file.size} for file in files]
    raw = raw.splitlines(keepends=True)[0] + json.dumps(header).encode() + b"\n" + b"".join(CONTENTS)
    code, answer = node.feed(raw)
    assert (code, answer["ok"]) == (1, False)
    assert message in answer["error"]
    assert node.names() == set()


@pytest.mark.parametrize("line", [b"no json\n", b"[]\n", b"{}\n", b"\n", b""])
def test_a_first_line_that_is_not_understood_is_an_answer_not_a_traceback(node: Node, line: bytes) -> None:
    code, answer = node.feed(send.program(verify, folder, receive) + line + b"more bytes")
    assert code == 1
    assert "first line is not understood" in answer["error"]


def test_a_missing_folder_is_an_answer(node: Node) -> None:
    node.folder.rmdir()
    code, answer = node.send()
    assert (code, answer["error"]) == (1, f"{node.folder}: the folder does not exist")


def test_a_folder_in_the_way_of_a_file_is_an_answer(node: Node) -> None:
    (node.folder / node.files[1].name).mkdir()
    code, answer = node.send()
    assert (code, answer["file"]) == (1, node.files[1].name)
    assert "a folder is in the way" in answer["error"]


def test_two_transfers_into_one_folder_neither_wait_for_nor_sweep_each_other(node: Node) -> None:
    raw = b"".join(send.stream(node.transfer(), opener))
    with subprocess.Popen(
        shlex.split(send.command(sys.executable)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdin
        first.stdin.write(raw[:-10])
        first.stdin.flush()
        while not [name for name in node.names() if name.startswith(verify.TEMPORARY)]:
            time.sleep(0.01)
        assert node.send()[0] == 0
        assert [name for name in node.names() if name.startswith(verify.TEMPORARY)]
        first.stdin.write(raw[-10:])
        first.stdin.close()
        assert first.wait() == 0
    assert node.names() == set(BY_NAME)
    node.check_what_is_there()


def test_what_a_killed_transfer_left_is_swept_while_another_is_at_work(node: Node) -> None:
    raw = b"".join(send.stream(node.transfer(), opener))
    processes = []
    for _ in range(2):
        before = len(node.names())
        process = subprocess.Popen(
            shlex.split(send.command(sys.executable)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin
        process.stdin.write(raw[:-10])
        process.stdin.flush()
        processes.append(process)
        while len(node.names()) <= before or not [
            name for name in node.names() if f"{verify.TEMPORARY}{process.pid}." in name
        ]:
            time.sleep(0.01)
    with processes[0] as at_work, processes[1] as killed:
        killed.kill()
        killed.wait()
        assert node.send(files=node.files[:1])[0] == 0
        left = {name for name in node.names() if name.startswith(verify.TEMPORARY)}
        assert {name.split(".")[1] for name in left} == {f"tmp-{at_work.pid}"}
        at_work.kill()


def test_a_stopped_receiver_cleans_up_and_says_so(node: Node) -> None:
    raw = b"".join(send.stream(node.transfer(), opener))
    with subprocess.Popen(
        shlex.split(send.command(sys.executable)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(raw[:-10])
        process.stdin.flush()
        while not [name for name in node.names() if node.files[-1].name in name]:
            time.sleep(0.01)
        process.terminate()
        answer = json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait() == 1
    assert "stopped by SIGTERM" in answer["error"]
    assert node.names() == {file.name for file in node.files[:-1]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Node]:
    """A file system of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    yield Node(folder)
    subprocess.run(["umount", folder], check=True)


@as_root
def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(small_disk: Node) -> None:
    code, answer = small_disk.send()
    assert code == 1
    assert "not enough space on the disk: 2870001 bytes to come" in answer["error"]
    assert small_disk.names() == set()


@as_root
def test_a_disk_that_fills_midway_is_an_answer_and_what_is_whole_stays(small_disk: Node) -> None:
    """Somebody else takes the space after the check."""
    files = (*small_disk.files[:4], sent(CONTENTS[3][:-1] + b"x"))
    BY_NAME[files[4].name] = CONTENTS[3][:-1] + b"x"
    raw = b"".join(send.stream(small_disk.transfer(files=files), opener))
    del BY_NAME[files[4].name]
    with subprocess.Popen(
        shlex.split(send.command(sys.executable)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(raw[:-250_000])
        process.stdin.flush()
        while len([name for name in small_disk.names() if not name.startswith(".")]) < 4:
            time.sleep(0.01)
        hog = small_disk.folder / "hog"
        subprocess.run(["dd", "if=/dev/zero", f"of={hog}", "bs=4k"], capture_output=True, check=False)
        process.stdin.write(raw[-250_000:])
        process.stdin.close()
        answer = json.loads(process.stdout.read())
        assert process.wait() == 1
    assert (answer["error"], answer["file"], answer["received"]) == ("the disk is full", files[4].name, 4)
    hog.unlink()
    assert small_disk.names() == {file.name for file in files[:4]}
    small_disk.check_what_is_there()


@as_root
def test_a_read_only_file_system_is_an_answer(small_disk: Node) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk.folder], check=True)
    code, answer = small_disk.send(files=small_disk.files[:2])
    assert (code, answer["error"]) == (1, "the file system is read-only")


def test_the_sender_reads_nothing_before_its_turn_and_notices_a_wrong_size() -> None:
    opened: list[str] = []

    def open_file(file: SentFile) -> io.BytesIO:
        opened.append(file.name)
        return io.BytesIO(b"1234")

    files = (SentFile("a", "0" * 64, 4), SentFile("b", "0" * 64, 5), SentFile("c", "0" * 64, 3))
    pieces = send.stream(Transfer("/x", files), open_file)
    next(pieces)
    next(pieces)
    assert opened == []
    assert (next(pieces), opened) == (b"1234", ["a"])
    with pytest.raises(DataError, match=r"b: the file to send has another size.*found 4 bytes, expected 5"):
        list(pieces)
    with pytest.raises(DataError, match=r"c: the file to send has another size.*found more than 3 bytes"):
        list(send.stream(Transfer("/x", files[2:]), open_file))


def test_a_file_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    transfer = Transfer("/x", (SentFile("gone", "0" * 64, 4),))
    with pytest.raises(DataError, match="gone: the file to send cannot be read"):
        list(send.stream(transfer, lambda file: (tmp_path / file.name).open("rb", buffering=0)))


def test_a_command_that_is_repeated_gets_the_same_bytes_again(node: Node) -> None:
    command, pieces = send.upload(node.transfer(), opener, python="python3.9")
    assert command.startswith("python3.9 ")
    assert b"".join(pieces) == b"".join(pieces) == b"".join(send.stream(node.transfer(), opener))


def test_the_answer_is_read_from_the_last_line_whatever_the_login_shell_says() -> None:
    line = json.dumps({"ok": True, "received": 3, "skipped": 1, "bytes": 9, "seconds": 0.5})
    assert send.receipt("qfox", f"Welcome!\n{line}\n") == Receipt(3, 1, 9, 0.5)


@pytest.mark.parametrize(
    ("stdout", "message"),
    [
        ("", "qfox: the transfer ended without an answer .found no output"),
        ("Killed\n", "qfox: the transfer ended without an answer .found Killed"),
        (
            '{"ok":false,"received":2,"skipped":0,"bytes":9,"seconds":1,"error": "full", "file": "a"}',
            "qfox: a: full. 2 files arrived whole",
        ),
    ],
)
def test_a_failed_transfer_is_an_error_that_names_the_host(stdout: str, message: str) -> None:
    with pytest.raises(TransferError, match=message):
        send.receipt("qfox", stdout)
