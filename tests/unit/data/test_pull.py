"""Pulling chunks by the real program, from real chunk servers and a backend on the loopback interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.data import verify
from tests.unit.data.pull_bench import CHECKOUT, Bench, Rclone, contents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_chunks_come_from_the_planned_sources_and_are_counted(bench: Bench) -> None:
    first, second, *_ = bench.chunks
    with Rclone.chunks(bench.node("one")) as one, Rclone.chunks(bench.node("two")) as two:
        bench.neighbours = {"one": one.url, "two": two.url}
        bench.orders = {first: ["one", "remote"], second: ["two", "remote"]}
        answer = bench.pull()
    assert bench.there() == set(bench.chunks)
    total = sum(map(len, bench.chunks.values()))
    assert (answer["ok"], answer["received"], answer["skipped"], answer["bytes"]) == (True, 5, 0, total)
    assert answer["sources"] == {
        "one": {"chunks": 1, "bytes": len(bench.chunks[first])},
        "two": {"chunks": 1, "bytes": len(bench.chunks[second])},
        "remote": {"chunks": 3, "bytes": total - len(bench.chunks[first]) - len(bench.chunks[second])},
    }
    assert (answer["instead"], answer["failed"], answer["passed_over"], answer["error"]) == ({}, [], [], None)


def test_files_have_the_mode_and_need_not_be_read_again_to_verify_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.pull(mode="0604")
    assert {(bench.folder / name).stat().st_mode & 0o777 for name in bench.there()} == {0o604}
    monkeypatch.setattr(verify, "SETTLED_NS", 0)
    wanted = {sha256: len(content) for sha256, content in bench.chunks.items()}
    found = verify.examine(str(bench.folder), wanted)
    assert found == {"missing": [], "damaged": {}, "extra": [], "hashed": 0}


def test_what_is_there_is_left_alone_and_what_is_damaged_is_replaced(bench: Bench) -> None:
    bench.pull()
    damaged, gone, *kept = bench.chunks
    before = {name: (bench.folder / name).stat().st_ino for name in kept}
    (bench.folder / damaged).write_bytes(b"?" * len(bench.chunks[damaged]))
    (bench.folder / gone).unlink()
    answer = bench.pull()
    assert (answer["ok"], answer["received"], answer["skipped"]) == (True, 2, 3)
    assert bench.there() == set(bench.chunks)
    assert {name: (bench.folder / name).stat().st_ino for name in kept} == before


def test_nothing_to_get_starts_no_rclone(bench: Bench) -> None:
    bench.pull()
    assert bench.pull(rclone="/nowhere/rclone")["ok"]


def test_a_request_for_no_chunks_is_fulfilled(bench: Bench) -> None:
    answer = bench.pull(chunks=[])
    assert (answer["ok"], answer["received"], answer["sources"]) == (True, 0, {})


def test_a_chunk_that_is_asked_for_twice_is_got_once(bench: Bench) -> None:
    chunks = bench.request()["chunks"]
    assert bench.pull(chunks=[*chunks, *chunks])["received"] == 5


@pytest.mark.parametrize("fault", ["flipped", "longer", "shorter", "empty"])
def test_a_damaged_chunk_at_one_source_is_taken_from_the_next_and_named(bench: Bench, fault: str) -> None:
    *_, damaged, _ = bench.chunks
    folder = bench.node("one")
    content = bench.chunks[damaged]
    (folder / damaged).write_bytes(
        {
            "flipped": content[:1000] + b"?" + content[1001:],
            "longer": content + b"?",
            "shorter": content[:-1],
            "empty": b"",
        }[fault]
    )
    with Rclone.chunks(folder) as one:
        bench.neighbours = {"one": one.url}
        bench.ask_all("one", "remote")
        answer = bench.pull()
    assert bench.there() == set(bench.chunks)
    assert answer["instead"] == {"one": {"remote": 1}}
    [trouble] = answer["passed_over"]
    assert (trouble["source"], trouble["kind"], trouble["sha256"]) == ("one", "damaged", [damaged])
    assert (answer["ok"], answer["failed"]) == (True, [])


def test_a_chunk_that_a_source_does_not_have_is_taken_from_the_next(bench: Bench) -> None:
    absent, *_ = bench.chunks
    with Rclone.chunks(bench.node("one", absent)) as one, Rclone.chunks(bench.node("two")) as two:
        bench.neighbours = {"one": one.url, "two": two.url}
        bench.ask_all("one", "two")
        answer = bench.pull()
    assert bench.there() == set(bench.chunks)
    assert (answer["sources"]["one"]["chunks"], answer["sources"]["two"]["chunks"]) == (4, 1)
    assert answer["passed_over"][0]["kind"] == "absent"


def test_a_vanished_neighbour_is_given_up_and_the_backend_serves(tmp_path: Path) -> None:
    bench = Bench(tmp_path, contents(2, [1000] * 60))
    with Rclone.chunks(bench.node("one")) as one:
        bench.neighbours = {"one": one.url}
    bench.ask_all("one", "remote")
    answer = bench.pull()
    assert bench.there() == set(bench.chunks)
    assert answer["instead"] == {"one": {"remote": 60}}
    [trouble] = answer["passed_over"]
    assert (trouble["kind"], trouble["chunks"]) == ("unreachable", 60)
    assert "refuses connections" in trouble["why"]


def test_a_source_that_nobody_introduced_is_passed_over(bench: Bench) -> None:
    bench.ask_all("stranger", "remote")
    answer = bench.pull()
    assert (answer["ok"], answer["instead"]) == (True, {"stranger": {"remote": 5}})
    assert answer["passed_over"][0]["why"] == "this node knows no such source"


def test_what_no_source_gives_is_told_with_each_ones_last_word(bench: Bench) -> None:
    lost, *others = bench.chunks
    with Rclone.chunks(bench.node("one", lost)) as one:
        bench.neighbours = {"one": one.url, "two": "http://127.0.0.1:9"}
        bench.ask_all("one", "two")
        answer = bench.pull()
    assert (answer["ok"], answer["received"], answer["error"]) == (False, 4, None)
    assert bench.there() == set(others)
    assert [(word["sha256"], word["source"], word["kind"]) for word in answer["failed"]] == [
        (lost, "one", "absent"),
        (lost, "two", "unreachable"),
    ]


def test_a_chunk_that_nobody_can_be_asked_for_is_told_too(bench: Bench) -> None:
    alone, *_ = bench.chunks
    bench.orders = {alone: []}
    answer = bench.pull()
    assert (answer["ok"], answer["received"]) == (False, 4)
    assert [(word["sha256"], word["source"]) for word in answer["failed"]] == [(alone, "none")]


def test_a_source_that_is_named_twice_is_asked_once(bench: Bench) -> None:
    bench.neighbours = {"one": "http://127.0.0.1:9"}
    bench.ask_all("one", "one")
    assert {word["kind"] for word in bench.pull()["failed"]} == {"unreachable"}


def test_all_chunks_that_failed_or_were_passed_over_are_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path, contents(2, [1000] * 300))
    with Rclone.chunks(bench.node("one", *bench.chunks)) as one:
        bench.neighbours = {"one": one.url}
        bench.ask_all("one")
        assert len(bench.pull()["failed"]) == 300
        bench.ask_all("one", "remote")
        [trouble] = bench.pull()["passed_over"]
    assert set(trouble["sha256"]) == set(bench.chunks)


def test_a_source_that_comes_back_is_asked_a_second_time_at_the_end(bench: Bench) -> None:
    folder = bench.node("one")
    with Rclone.chunks(folder) as before:
        port = before.port
    bench.neighbours = {"one": f"http://127.0.0.1:{port}"}
    bench.ask_all("one")
    with bench.start() as process, Rclone.chunks(folder, port=port):
        answer = json.loads(process.communicate(timeout=60)[0])
    assert (answer["ok"], answer["received"]) == (True, 5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no json", "the request is not understood"),
        ("", "the request is not understood"),
        ("[]", "the request is not understood"),
        ("{}", "the request is not understood"),
    ],
)
def test_a_request_that_is_not_understood_is_an_answer(line: str, message: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tailtrain.data.pull"],
        cwd=CHECKOUT,
        input=line,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (1, "")
    answer = json.loads(run.stdout)
    assert answer["ok"] is False
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"folder": "/nowhere/chunks"}, "/nowhere/chunks: the folder does not exist"),
        ({"mode": "rw"}, "the mode is not octal"),
        ({"reserve_bytes": 10**18}, "not enough space on the disk: 2882346 bytes to come"),
        ({"neighbours": {"one": "ftp://127.0.0.1:1"}}, "not an address of a chunk server"),
        ({"neighbours": []}, "the request is not understood"),
        ({"chunks": [{"sha256": "../etc", "size": 1, "from": [], "pack": None}]}, "no chunk: ../etc"),
        ({"chunks": [{"sha256": "0" * 64, "size": 0, "from": [], "pack": None}]}, "of 0 bytes"),
    ],
)
def test_a_request_that_cannot_be_is_an_answer(bench: Bench, changes: dict[str, Any], message: str) -> None:
    answer = bench.pull(**changes)
    assert answer["ok"] is False
    assert message in answer["error"]
    assert bench.names() == set()


def test_it_needs_nothing_but_the_standard_library() -> None:
    """Nodes have neither the control machine's packages nor all of its code."""
    script = (
        f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import tailtrain.data.pull; print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-IS", "-c", script], capture_output=True, text=True, check=True)
    ours = {name for name in run.stdout.split() if name.startswith("tailtrain.")}
    parts = {"answer", "backend", "batch", "connections", "source"}
    assert ours == {
        *(
            "tailtrain.errors",
            "tailtrain.data",
            "tailtrain.data.pull",
            *(f"tailtrain.data.pull_{part}" for part in parts),
        ),
        *("tailtrain.data.folder", "tailtrain.data.packs", "tailtrain.data.verify"),
    }


def test_memory_stays_small_whatever_the_size(tmp_path: Path) -> None:
    bench = Bench(tmp_path, contents(3, [48 << 20, *[1 << 20] * 40, *[1000] * 200]))
    with Rclone.chunks(bench.node("one")) as one:
        bench.neighbours = {"one": one.url}
        names = list(bench.chunks)
        bench.orders = {name: ["one"] for name in names[::2]}
        largest = 0
        with bench.start() as process:
            while process.poll() is None and (size := _peak_kib(process.pid)):
                largest = max(largest, size)
                os.sched_yield()
            assert process.stdout
            answer = json.loads(process.stdout.read())
    assert answer["received"] == len(names)
    assert largest < 60 << 10


def _peak_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:  # noqa: PTH123 - of another process
        return next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)
