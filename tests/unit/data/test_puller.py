"""Pulling single chunks while a training runs: the library that a worker uses."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tailtrain.data.packs import places_of
from tailtrain.data.pull import HERE, REMOTE, Puller
from tailtrain.errors import DataError
from tests.unit.data.pull_bench import (
    CHECKOUT,
    RCLONE,
    Bench,
    Rclone,
    alive,
    contents,
    rclones_of,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, contents(11))


def puller(bench: Bench, **neighbours: str) -> closing[Puller]:
    places = places_of(bench.packs)
    return closing(Puller(str(bench.folder), neighbours, bench.remote, RCLONE, places))


def test_a_chunk_comes_from_the_first_source_that_gives_it(bench: Bench) -> None:
    first, second, *_ = bench.chunks
    with Rclone.chunks(bench.node("one", second)) as one, puller(bench, one=one.url) as pulls:
        fetched = pulls.fetch(first, len(bench.chunks[first]), ["one", REMOTE])
        assert (fetched.source, fetched.bytes) == ("one", len(bench.chunks[first]))
        assert fetched.seconds > 0
        assert pulls.fetch(second, len(bench.chunks[second]), ["one", REMOTE]).source == REMOTE
        again = pulls.fetch(first, len(bench.chunks[first]), ["one", REMOTE])
        assert (again.source, again.bytes) == (HERE, 0)
    assert bench.there() == {first, second}


def test_rclone_runs_only_from_when_it_is_needed_until_the_end(bench: Bench) -> None:
    first, second, *_ = bench.chunks
    with Rclone.chunks(bench.node("one")) as one, puller(bench, one=one.url) as pulls:
        pulls.fetch(first, len(bench.chunks[first]), ["one", REMOTE])
        assert rclones_of(os.getpid()) == []
        pulls.fetch(second, len(bench.chunks[second]), [REMOTE])
        [child] = rclones_of(os.getpid())
    assert not alive(child)


def test_what_no_source_gives_is_an_error_with_each_ones_reason(bench: Bench) -> None:
    bench.pack_path(bench.packs[0]).unlink()
    name = next(iter(bench.chunks))
    with (
        puller(bench, one=NOBODY) as pulls,
        pytest.raises(
            DataError,
            match=f"{name}: no source gave this chunk .*one: it refuses connections; remote: it has no such",
        ),
    ):
        pulls.fetch(name, len(bench.chunks[name]), ["one", REMOTE])
    assert bench.names() == set()


def test_threads_that_want_the_same_chunk_get_it_once(bench: Bench) -> None:
    name, content = max(bench.chunks.items(), key=lambda item: len(item[1]))
    with puller(bench) as pulls, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: pulls.fetch(name, len(content), [REMOTE]).source, range(8)))
    assert sorted(found) == [HERE] * 7 + [REMOTE]
    assert bench.there() == {name}


def test_threads_get_many_chunks_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, contents(12, [30_000] * 60))
    with (
        Rclone.chunks(bench.node("one")) as one,
        puller(bench, one=one.url) as pulls,
        ThreadPoolExecutor(8) as threads,
    ):
        orders = [["one"], [REMOTE], ["nobody", "one"]] * 20
        jobs = zip(bench.chunks, orders, strict=True)
        list(threads.map(lambda job: pulls.fetch(job[0], 30_000, job[1]), jobs))
    assert bench.there() == set(bench.chunks)


def test_a_source_that_keeps_failing_is_left_alone_for_a_minute(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bench.node("one")
    name, content = next(iter(bench.chunks.items()))
    with Rclone.chunks(folder) as before:
        port = before.port
    with puller(bench, one=f"http://127.0.0.1:{port}") as pulls:
        for _ in range(3):
            with pytest.raises(DataError):
                pulls.fetch(name, len(content), ["one"])
        with Rclone.chunks(folder, port=port):
            with pytest.raises(DataError, match="refuses connections"):
                pulls.fetch(name, len(content), ["one"])
            monkeypatch.setattr(pulls._sources["one"], "_rests_until", time.monotonic())  # a minute later
            assert pulls.fetch(name, len(content), ["one"]).source == "one"


def test_a_connection_that_the_other_side_closed_meanwhile_is_made_anew(bench: Bench) -> None:
    folder = bench.node("one")
    first, second, *_ = bench.chunks
    with Rclone.chunks(folder) as before, puller(bench, one=before.url) as pulls:
        pulls.fetch(first, len(bench.chunks[first]), ["one"])
        before.stop()
        with Rclone.chunks(folder, port=before.port):
            assert pulls.fetch(second, len(bench.chunks[second]), ["one"]).source == "one"


def test_a_silent_source_does_not_hold_up_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailtrain.data.pull_connections.IDLE_SECONDS", 0.3)
    folder = bench.node("one")
    name, content = max(bench.chunks.items(), key=lambda item: len(item[1]))
    with Rclone.chunks(folder) as one, puller(bench, one=one.url) as pulls:
        one.pause()
        assert _seconds(lambda: pulls.fetch(name, len(content), ["one", REMOTE])) < 5
        one.go_on()
    assert bench.there() == {name}


def test_a_full_disk_is_an_error_and_asks_no_source(bench: Bench) -> None:
    name, content = next(iter(bench.chunks.items()))
    pulls = Puller(str(bench.folder), {}, None, None, {}, reserve_bytes=10**18)
    with closing(pulls), pytest.raises(DataError, match=r"chunks cannot be written .*not enough space"):
        pulls.fetch(name, len(content), [REMOTE])


def test_a_missing_folder_is_an_error(bench: Bench) -> None:
    with pytest.raises(DataError, match=r"/nowhere: chunks cannot be written .*the folder does not exist"):
        Puller("/nowhere", {}, None, None, {})


def test_closing_ends_what_other_threads_wait_for(bench: Bench) -> None:
    name, content = max(bench.chunks.items(), key=lambda item: len(item[1]))
    problems: list[BaseException] = []
    with Rclone.chunks(bench.node("one"), "--bwlimit", "100k", "--buffer-size", "0") as one:
        pulls = Puller(str(bench.folder), {"one": one.url}, None, None, {})

        def fetch() -> None:
            with pytest.raises(DataError) as caught:
                pulls.fetch(name, len(content), ["one"])
            problems.append(caught.value)

        thread = threading.Thread(target=fetch)
        thread.start()
        wait_until(bench.names)
        assert _seconds(pulls.close) < 5
        thread.join(5)
    assert len(problems) == 1
    assert bench.names() == set()


def test_a_process_that_forked_can_end_rclone_and_one_that_is_killed_too(bench: Bench) -> None:
    """Fork as hivemind does: the child has the pipe to rclone's keeper as well."""
    name, content = next(iter(bench.chunks.items()))
    script = (
        "import os, sys, time\n"
        "from tailtrain.data.pull import Puller, RcloneRemote, Place\n"
        f"pulls = Puller({str(bench.folder)!r}, {{}}, RcloneRemote({bench.remote.path!r}, "
        f"{bench.remote.config!r}), {RCLONE!r}, {{{name!r}: Place({bench.packs[0].name!r}, 0)}})\n"
        f"pulls.fetch({name!r}, {len(content)}, ['remote'])\n"
        "if not os.fork():\n"
        "    time.sleep(60)\n"
        "    os._exit(0)\n"
        "print('forked', flush=True)\n"
        "sys.stdin.readline()\n"
        "pulls.close()\n"
        "print('closed', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "forked\n"
        [child] = rclones_of(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "closed\n"
        assert not alive(child)
        process.kill()


def _seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began
