"""Packs on S3, end to end: rclone against two servers that speak S3 over the network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tailtrain.data.backends import program
from tailtrain.data.backends.listing import Listing, list_packs
from tailtrain.data.backends.upload import upload
from tailtrain.errors import DataError, StorageError
from tailtrain.spec import StorageBackend
from tests.standins.s3 import S3StandIn, start_moto, start_rclone
from tests.unit.data.storage_cases import RCLONE, damaged, make_packs, remote_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tailtrain.data.backends.remote import Remote

BUCKET = "fleet-data"


@pytest.fixture(scope="module")
def by_rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3StandIn]:
    folder = tmp_path_factory.mktemp("s3")
    (folder / BUCKET).mkdir()
    standin = start_rclone(folder, RCLONE)
    yield standin
    standin.close()


@pytest.fixture(scope="module")
def by_moto() -> Iterator[S3StandIn]:
    standin = start_moto(BUCKET)
    yield standin
    standin.close()


@pytest.fixture
def s3(by_rclone: S3StandIn, tmp_path: Path) -> Callable[..., Remote]:
    """A remote on rclone's server, in a folder of the test's own."""

    def make(folder: str = f"{BUCKET}/{tmp_path.name}", **options: str) -> Remote:
        return remote_at(StorageBackend.S3, {**by_rclone.options(), **options}, folder, tmp_path)

    return make


@pytest.mark.parametrize("server", ["by_rclone", "by_moto"])
def test_packs_are_sent_once_listed_and_read_back_by_range(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    standin = request.getfixturevalue(server)
    remote = remote_at(StorageBackend.S3, standin.options(), f"{BUCKET}/{tmp_path.name}", tmp_path)
    packs = make_packs(tmp_path / "chunks", packs=6, size=200_001)
    assert list_packs(remote) == Listing()
    said: list[tuple[int, int]] = []
    sent = upload(
        remote, packs, tmp_path / "chunks", tmp_path / "work", progress=lambda *now: said.append(now)
    )
    assert (sent.packs, sent.bytes) == (6, 6 * 200_001)
    assert said[-1] == (6 * 200_001, 6 * 200_001)
    assert said == sorted(said)
    assert list_packs(remote) == Listing({pack.name: 200_001 for pack in sorted(packs)})
    assert list((tmp_path / "work").iterdir()) == []
    assert damaged(remote, packs, tmp_path) == []
    assert upload(remote, packs, tmp_path / "chunks", tmp_path / "work").packs == 0


def test_a_large_pack_goes_in_parts(by_moto: S3StandIn, tmp_path: Path) -> None:
    options = {**by_moto.options(), "upload_cutoff": "5Mi", "chunk_size": "5Mi"}
    remote = remote_at(StorageBackend.S3, options, f"{BUCKET}/parts", tmp_path)
    packs = make_packs(tmp_path / "chunks", packs=1, size=12_000_000)
    assert upload(remote, packs, tmp_path / "chunks", tmp_path / "work").bytes == 12_000_000
    assert damaged(remote, packs, tmp_path) == []


def test_a_truncated_pack_is_seen_in_the_listing_and_sent_again(
    s3: Callable[..., Remote], by_rclone: S3StandIn, tmp_path: Path
) -> None:
    remote, packs = s3(), make_packs(tmp_path / "chunks", packs=2, size=30_000)
    upload(remote, packs, tmp_path / "chunks", tmp_path / "work")
    assert by_rclone.folder
    stored = by_rclone.folder / remote.folder / "packs" / packs[0].name
    stored.write_bytes(stored.read_bytes()[:-1])
    assert list_packs(remote).missing(packs) == packs[:1]
    assert upload(remote, packs, tmp_path / "chunks", tmp_path / "work").packs == 1
    assert list_packs(remote).missing(packs) == ()


def test_a_damaged_pack_is_found_by_a_node_and_mended_by_replacing(
    s3: Callable[..., Remote], by_rclone: S3StandIn, tmp_path: Path
) -> None:
    remote, packs = s3(), make_packs(tmp_path / "chunks", packs=2, size=30_000)
    upload(remote, packs, tmp_path / "chunks", tmp_path / "work")
    assert by_rclone.folder
    stored = by_rclone.folder / remote.folder / "packs" / packs[1].name
    content = bytearray(stored.read_bytes())
    content[15_000] ^= 1
    stored.write_bytes(content)
    assert damaged(remote, packs, tmp_path) == [packs[1].name]
    assert upload(remote, packs, tmp_path / "chunks", tmp_path / "work").packs == 0
    mended = upload(remote, packs[1:], tmp_path / "chunks", tmp_path / "work", replace=True)
    assert mended.packs == 1
    assert damaged(remote, packs, tmp_path) == []


def test_killed_and_run_again_it_sends_only_what_is_missing(
    s3: Callable[..., Remote], by_rclone: S3StandIn, tmp_path: Path
) -> None:
    remote, packs = s3(), make_packs(tmp_path / "chunks", packs=12, size=3_000)
    program = f"""
import sys
from pathlib import Path
from tailtrain.data.backends.upload import upload
from tests.unit.data.storage_cases import make_packs, remote_at
from tailtrain.spec import StorageBackend
folder = Path({str(tmp_path)!r})
packs = make_packs(folder / "chunks", packs=12, size=3_000)
remote = remote_at(StorageBackend.S3, {by_rclone.options()!r}, {remote.folder!r}, folder)
def told(done, total):
    if done >= total / 3:
        print("a third", flush=True)
        sys.stdin.read()
upload(remote, packs, folder / "chunks", folder / "work", progress=told)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"a third\n"
        process.send_signal(signal.SIGKILL)
    there = len(list_packs(remote).packs)
    assert 4 <= there < 12
    again = upload(remote, packs, tmp_path / "chunks", tmp_path / "work")
    assert again.packs == 12 - there
    assert list_packs(remote).missing(packs) == ()
    assert list((tmp_path / "work").iterdir()) == []


def test_no_such_bucket_is_said_and_none_is_made(s3: Callable[..., Remote], by_rclone: S3StandIn) -> None:
    remote = s3("not-there/data")
    with pytest.raises(StorageError, match="there is no such bucket"):
        list_packs(remote)
    assert by_rclone.folder
    assert not (by_rclone.folder / "not-there").exists()


def test_moto_too_has_no_such_bucket(by_moto: S3StandIn, tmp_path: Path) -> None:
    remote = remote_at(StorageBackend.S3, by_moto.options(), "not-there/data", tmp_path)
    with pytest.raises(StorageError, match="there is no such bucket"):
        list_packs(remote)


def test_a_wrong_key_is_said(s3: Callable[..., Remote]) -> None:
    with pytest.raises(StorageError, match="S3 does not take the access key") as caught:
        list_packs(s3(secret_access_key="sentinel-secret-of-a-person"))  # noqa: S106  # not one
    assert "sentinel" not in str(caught.value)


def test_a_server_that_is_gone_is_said(s3: Callable[..., Remote]) -> None:
    begun = time.monotonic()
    with pytest.raises(StorageError, match="it does not answer"):
        list_packs(s3(endpoint="http://127.0.0.1:9"))
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_chunk_that_is_wrong_here_is_not_sent(
    s3: Callable[..., Remote], tmp_path: Path, damage: str
) -> None:
    remote, packs = s3(), make_packs(tmp_path / "chunks", packs=1, size=3_000)
    chunk = tmp_path / "chunks" / packs[0].chunks[1][0]
    content = bytearray(chunk.read_bytes())
    if damage == "missing":
        chunk.unlink()
    elif damage == "truncated":
        chunk.write_bytes(content[:-1])
    else:
        content[7] ^= 1
        chunk.write_bytes(content)
    with pytest.raises(DataError, match="missing or damaged"):
        upload(remote, packs, tmp_path / "chunks", tmp_path / "work")
    assert list_packs(remote) == Listing()
    assert list((tmp_path / "work").iterdir()) == []


def test_a_server_that_takes_the_call_and_never_answers_is_given_up(
    by_rclone: S3StandIn, s3: Callable[..., Remote]
) -> None:
    remote = s3()
    os.kill(by_rclone.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StorageError, match="does not answer: nothing came for 2 s"):
            program.run(remote, ("lsjson", remote.packs_path), patience=2.0)
    finally:
        os.kill(by_rclone.process.pid, signal.SIGCONT)
