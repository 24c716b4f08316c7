"""The backend as a source: rclone reads local, alias and S3 remotes; what it says is put in plain words."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.data.packs import Place, packs_of, places_of
from tailtrain.data.pull_backend import Backend, RcloneRemote, _meaning
from tailtrain.data.pull_batch import _Line
from tailtrain.data.pull_source import Chunk
from tests.unit.data.pull_bench import RCLONE, Bench, Rclone, contents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMPATIENT = {"flags": ["--low-level-retries", "1"]}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, contents(7, [200_000, 300_000, 100_000, 50_000]))


def remote(bench: Bench, path: str | None = None, **changes: Any) -> dict[str, Any]:
    return {"path": path or bench.remote.path, "config": bench.remote.config, "flags": [], **changes}


def s3(bench: Bench, url: str, secret: str = "secret") -> dict[str, Any]:  # noqa: S107 - of a test
    bench.config.write_text(
        "# written by a deploy\n[my-store]\ntype = s3\nprovider = Rclone\naccess_key_id = key\n"
        f"secret_access_key = {secret}\nendpoint = {url}\n"
    )
    return remote(bench, f"my-store:{bench.backend.name}")


def kinds(answer: dict[str, Any]) -> set[str]:
    return {word["kind"] for word in answer["failed"]}


def test_packs_of_an_s3_bucket(bench: Bench) -> None:
    with Rclone("s3", str(bench.place), "--auth-key", "key,secret") as server:
        answer = bench.pull(remote=s3(bench, server.url))
    assert (answer["ok"], answer["received"]) == (True, 4)
    assert bench.there() == set(bench.chunks)


def test_packs_of_an_alias_in_a_folder(bench: Bench) -> None:
    bench.config.write_text(f"[Short]\ntype = alias\nremote = {bench.place}\n[other]\ntype = local\n")
    assert bench.pull(remote=remote(bench, "Short:backend"))["ok"]


def test_a_folder_whose_name_needs_care(bench: Bench) -> None:
    odd = bench.place / "a [b] ü? %41#"
    bench.backend.rename(odd)
    assert bench.pull(remote=remote(bench, f"fleet:{odd}"))["ok"]


def test_chunks_that_lie_together_are_read_with_one_request(bench: Bench) -> None:
    with Rclone("s3", str(bench.place), "-v", "-v", "--auth-key", "key,secret") as server:
        answer = bench.pull(remote=s3(bench, server.url))
        server.stop()
        assert answer["ok"]
        assert server.log().count("GET OBJECT") == 1


def test_a_wrong_secret_is_refused_and_the_secret_is_not_told(bench: Bench) -> None:
    with Rclone("s3", str(bench.place), "--auth-key", "key,secret") as server:
        answer = bench.pull(remote=s3(bench, server.url, "hush-hush"))
    assert (answer["ok"], kinds(answer)) == (False, {"refused"})
    assert answer["failed"][0]["why"].startswith("the backend does not let this node in: ")
    assert "Forbidden" in answer["failed"][0]["why"]
    assert "hush-hush" not in str(answer)


def test_a_vanished_backend_is_unreachable(bench: Bench) -> None:
    answer = bench.pull(remote=s3(bench, "http://127.0.0.1:9") | IMPATIENT)
    assert kinds(answer) == {"unreachable"}
    assert answer["failed"][0]["why"].startswith("the backend does not answer: ")
    assert "connection refused" in answer["failed"][0]["why"]


def test_a_backend_that_asks_for_patience_has_a_limit(bench: Bench) -> None:
    words = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
    with _answers(503, words) as url:
        answer = bench.pull(remote=s3(bench, url) | IMPATIENT)
    assert kinds(answer) == {"limit"}
    assert "503" in answer["failed"][0]["why"]


def test_a_pack_that_is_not_there_is_absent(bench: Bench) -> None:
    bench.pack_path(bench.packs[0]).unlink()
    answer = bench.pull()
    assert (len(answer["failed"]), kinds(answer)) == (4, {"absent"})


def test_of_a_truncated_pack_what_is_whole_is_got_and_the_rest_comes_from_elsewhere(bench: Bench) -> None:
    pack = bench.pack_path(bench.packs[0])
    with pack.open("r+b") as file:
        file.truncate(550_000)  # in the third chunk
    whole = set(list(bench.chunks)[:2])
    answer = bench.pull()
    assert (answer["received"], kinds(answer)) == (2, {"damaged"})
    assert bench.there() == whole
    with Rclone.chunks(bench.node("one")) as one:
        bench.neighbours = {"one": one.url}
        bench.ask_all("remote", "one")
        answer = bench.pull()
    assert (answer["ok"], answer["instead"]) == (True, {"remote": {"one": 2}})
    assert (answer["passed_over"][0]["kind"], answer["passed_over"][0]["chunks"]) == ("damaged", 2)


def test_a_flipped_bit_in_a_pack_costs_the_one_chunk_and_names_it(bench: Bench) -> None:
    pack = bench.pack_path(bench.packs[0])
    with pack.open("r+b") as file:
        file.seek(250_000)
        byte = file.read(1)
        file.seek(250_000)
        file.write(bytes([byte[0] ^ 1]))
    answer = bench.pull()
    assert answer["received"] == 3
    [word] = answer["failed"]
    assert (word["sha256"], word["kind"]) == (list(bench.chunks)[1], "damaged")


def test_a_file_that_rclone_finds_but_cannot_open_is_told_in_its_words(bench: Bench) -> None:
    """The backend lets it look at the pack, but not read it."""
    size = sum(map(len, bench.chunks.values()))
    with _answers(403, "<Error><Code>AccessDenied</Code><Message>Not yours</Message></Error>", size) as url:
        answer = bench.pull(remote=s3(bench, url))
    assert kinds(answer) == {"refused"}
    assert "AccessDenied" in answer["failed"][0]["why"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rclone": "/nowhere/rclone"}, "there is no program /nowhere/rclone"),
        ({"rclone": None}, "this node knows no such source"),
        ({"remote": None}, "this node knows no such source"),
        (
            {"remote": {"config": "/nowhere/storage.conf"}},
            "/nowhere/storage.conf cannot be read: No such file",
        ),
        ({"remote": {"path": "other:x"}}, r"storage.conf has no readable section \[other\]"),
        ({"remote": {"flags": ["--no-such-flag"]}}, "rclone does not start: .*no-such-flag"),
    ],
)
def test_an_rclone_that_cannot_run_is_an_answer(bench: Bench, changes: dict[str, Any], why: str) -> None:
    if changes.get("remote"):
        changes = {"remote": remote(bench) | changes["remote"]}
    answer = bench.pull(**changes)
    assert (answer["ok"], answer["error"], len(answer["failed"])) == (False, None, 4)
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(answer["failed"][0]["why"])


def test_a_damaged_configuration_is_told_without_its_contents(bench: Bench) -> None:
    bench.config.write_text("[fleet]\ntype = s3\nhush-hush\n")
    answer = bench.pull()
    assert "no readable section [fleet]" in answer["failed"][0]["why"]
    assert "hush" not in str(answer)


def test_the_configuration_is_never_written(bench: Bench) -> None:
    before = bench.config.stat()
    assert bench.pull()["ok"]
    after = bench.config.stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    assert set(bench.place.iterdir()) == {bench.config, bench.backend, bench.folder}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("googleapi: Error 403: User rate limit exceeded., userRateLimitExceeded", "limit"),
        ("googleapi: Error 403: The download quota for this file has been exceeded", "limit"),
        ("api error SlowDown: Please reduce your request rate", "limit"),
        ("HeadObject, https response error StatusCode: 503, api error ServiceUnavailable", "limit"),
        ("googleapi: Error 429: Too many requests", "limit"),
        ("api error Forbidden: Forbidden", "refused"),
        ('oauth2: "invalid_grant" "Token has been expired or revoked."', "refused"),
        ("https response error StatusCode: 403, api error RequestTimeTooSkewed", "refused"),
        ("failed to find object: object not found", "absent"),
        ("googleapi: Error 404: File not found: ., notFound", "absent"),
        ("api error NoSuchBucket: The specified bucket does not exist", "absent"),
        ("dial tcp: lookup s3.example.org: no such host", "unreachable"),
        ("net/http: TLS handshake timeout", "unreachable"),
        ("context deadline exceeded", "unreachable"),
        ("", "unreachable"),
    ],
)
def test_what_backends_say_has_a_kind(words: str, kind: str) -> None:
    problem = _meaning(words)
    assert problem.kind == kind
    assert str(problem).endswith(words)


SIZES = st.lists(st.integers(1, 40 << 20), min_size=1, max_size=60)


@given(SIZES, st.integers(1, 8), st.data())
def test_requests_cover_all_chunks_once_in_order_and_are_not_too_large(
    sizes: list[int], parallel: int, data: st.DataObject
) -> None:
    backend = Backend("remote", RcloneRemote("a:b", "c"), RCLONE)
    named = [(f"{number:064x}", size) for number, size in enumerate(sizes)]
    places = places_of(packs_of(named))
    chosen = data.draw(st.lists(st.sampled_from(named), unique=True).map(sorted))
    line = _Line()
    for sha256, size in chosen:
        line.add(Chunk(sha256, size, ("remote",), places[sha256]))
    runs = []
    while run := line.take(backend, parallel):
        runs.append(run)
        place = run[0].place
        assert place
        offset = place.offset
        for chunk in run:
            assert chunk.place == Place(place.pack, offset)
            offset += chunk.size
        assert len(run) == 1 or sum(chunk.size for chunk in run) <= 32 << 20
    assert [(chunk.sha256, chunk.size) for run in runs for chunk in run] == chosen


@contextmanager
def _answers(status: int, words: str, size: int | None = None) -> Iterator[str]:
    """An S3 endpoint that refuses all; with a size, it lets every file be looked at."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200 if size else status)
            self.send_header("Content-Length", str(size or 0))
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
