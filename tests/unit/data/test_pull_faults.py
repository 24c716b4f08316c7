"""Pulling, broken in every way: killed, stopped, disks that are full or read-only, two at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tailtrain.data.verify import TEMPORARY
from tests.unit.data.pull_bench import Bench, Rclone, alive, contents, rclones_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
SIZES = [300_000] * 12


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, contents(5, SIZES))


@pytest.fixture
def slow(bench: Bench) -> Iterator[Bench]:
    """Half of the chunks come from a neighbour at 2 MB/s, half from the backend at the same speed."""
    with Rclone.chunks(bench.node("one"), "--bwlimit", "2M", "--buffer-size", "0") as one:
        bench.neighbours = {"one": one.url}
        bench.orders = {name: ["one"] for name in list(bench.chunks)[::2]}
        yield bench


def slowly(bench: Bench) -> dict[str, object]:
    remote = bench.request()["remote"]
    return {"remote": {**remote, "flags": ["--bwlimit", "2M"]}, "parallel": 2}


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_what_is_there_is_whole_and_the_next_run_gets_the_rest(
    slow: Bench, seed: int
) -> None:
    enough = random.Random(seed).randrange(0, 7)  # noqa: S311 - a repeatable place
    process = slow.start(**slowly(slow))
    wait_until(lambda: rclones_of(process.pid) and len(slow.names()) >= enough)
    [child] = rclones_of(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not alive(child))
    left = slow.there()
    answer = slow.pull()
    assert (answer["ok"], answer["skipped"], answer["received"]) == (True, len(left), 12 - len(left))
    assert slow.names() == set(slow.chunks), "temporary files are swept"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stopped_it_says_so_and_leaves_nothing_behind(slow: Bench, number: signal.Signals) -> None:
    with slow.start(**slowly(slow)) as process:
        wait_until(lambda: rclones_of(process.pid) and slow.there())
        [child] = rclones_of(process.pid)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=10)
    answer = json.loads(stdout)
    assert (process.returncode, answer["ok"], answer["error"]) == (1, False, f"stopped by {number.name}")
    assert stderr == ""
    assert not alive(child)
    assert len(slow.there()) == answer["received"]
    assert slow.names() == slow.there(), "no temporary file is left"


@pytest.mark.parametrize("midway", [False, True])
def test_rclone_that_is_killed_is_started_again(slow: Bench, *, midway: bool) -> None:
    of_the_backend = slow.chunks.keys() - slow.orders
    with slow.start(**slowly(slow)) as process:
        wait_until(lambda: rclones_of(process.pid) and (not midway or slow.there() & of_the_backend))
        os.kill(rclones_of(process.pid)[0], signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=30)
    answer = json.loads(stdout)
    assert (stderr, answer["ok"], answer["received"]) == ("", True, 12)
    assert slow.there() == set(slow.chunks)


def test_a_neighbour_that_vanishes_midway_is_replaced_by_the_next_source(slow: Bench) -> None:
    with Rclone.chunks(slow.node("two"), "--bwlimit", "500k", "--buffer-size", "0") as two:
        slow.neighbours["two"] = two.url
        slow.ask_all("two", "remote")
        with slow.start() as process:
            wait_until(slow.there)
            two.stop()
            answer = json.loads(process.communicate(timeout=30)[0])
    assert (answer["ok"], answer["received"]) == (True, 12)
    assert answer["sources"]["two"]["chunks"] + answer["instead"]["two"]["remote"] == 12
    assert {word["kind"] for word in answer["passed_over"]} == {"unreachable"}


def test_two_pulls_into_one_folder_at_once_neither_wait_for_nor_disturb_each_other(slow: Bench) -> None:
    def in_progress() -> set[str]:
        return {name for name in slow.names() if name.startswith(TEMPORARY)}

    with slow.start(**slowly(slow)) as first:
        wait_until(in_progress)
        first.send_signal(signal.SIGSTOP)
        before = in_progress()
        chunks = [{**chunk, "from": ["remote"]} for chunk in slow.request()["chunks"]]
        quick = slow.pull(chunks=chunks)
        assert in_progress() == before
        first.send_signal(signal.SIGCONT)
        answer = json.loads(first.communicate(timeout=30)[0])
    assert (quick["ok"], answer["ok"]) == (True, True), (quick, answer)
    assert slow.names() == slow.there() == set(slow.chunks)


def test_a_folder_in_the_way_of_a_chunk_is_an_answer(bench: Bench) -> None:
    name = next(iter(bench.chunks))
    (bench.folder / name).mkdir()
    answer = bench.pull()
    assert (answer["ok"], answer["error"]) == (False, f"{name}: a folder is in the way")


def test_a_folder_that_may_not_be_written_is_an_answer(bench: Bench) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    bench.folder.chmod(0o500)
    assert "permission denied" in bench.pull()["error"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Bench]:
    """The chunks' file system has 2 MB."""
    bench = Bench(tmp_path, contents(5, SIZES))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", bench.folder], check=True)
    yield bench
    subprocess.run(["umount", bench.folder], check=True)


@as_root
def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(small_disk: Bench) -> None:
    answer = small_disk.pull()
    assert answer["ok"] is False
    assert "not enough space on the disk: 3600000 bytes to come" in answer["error"]
    assert small_disk.names() == set()


@as_root
def test_a_disk_that_fills_midway_is_an_answer_and_what_is_whole_stays(small_disk: Bench) -> None:
    """Somebody else takes the space after the check."""
    request = small_disk.request(**slowly(small_disk))
    with small_disk.start(**{**request, "chunks": request["chunks"][:4]}) as process:
        wait_until(small_disk.there)
        hog = small_disk.folder / ".hog"
        subprocess.run(["dd", "if=/dev/zero", f"of={hog}", "bs=4k"], capture_output=True, check=False)
        answer = json.loads(process.communicate(timeout=30)[0])
        assert process.returncode == 1
    assert "the disk is full" in answer["error"]
    hog.unlink()
    assert len(small_disk.there()) == answer["received"] < 4
    assert small_disk.names() == small_disk.there()


@as_root
def test_a_read_only_file_system_is_an_answer(small_disk: Bench) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk.folder], check=True)
    answer = small_disk.pull(chunks=small_disk.request()["chunks"][:2])
    assert answer["ok"] is False
    assert "the file system is read-only" in answer["error"]
