"""Reading records: nothing skipped, nothing twice, resumable at any window, nothing held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailtrain.errors import CheckpointError, WorkerError
from tailtrain.worker.batches import BatchStream, DomainReader
from tailtrain.worker.config import DomainConfig, RowRange
from tailtrain.worker.records import ChunkStore
from tests.worker.conftest import code, words, write_chunks

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = 16


def _domain(directory: Path, name: str, texts: list[str], rows: int) -> DomainConfig:
    entries = write_chunks(directory, texts, rows)
    ranges = tuple(RowRange(entry["sha256"], 0, entry["rows"]) for entry in entries)
    return DomainConfig(name, "0" * 64, ranges, ())


def _reader(directory: Path, texts: list[str], *, rows: int = 7, seed: str = "1") -> DomainReader:
    return DomainReader(
        _domain(directory, "d", texts, rows), ChunkStore(directory), context=CONTEXT, seed=seed
    )


records = st.lists(st.text(alphabet="ab\n€", max_size=150), min_size=1, max_size=40)
tolerant = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@tolerant
@given(texts=records, seed=st.text(max_size=3))
def test_an_epoch_completes_every_record_once_and_holds_all_its_bytes(
    tmp_path: Path, texts: list[str], seed: str
) -> None:
    reader = _reader(tmp_path, texts, seed=seed)
    seen = bytearray()
    completed = 0
    while reader.position.epoch == 0:
        window, done = reader.next_window()
        assert window.shape == (CONTEXT + 1,)
        seen += window.tobytes()
        completed += done
    assert completed == len(texts)
    for byte in set("".join(texts).encode()):
        assert seen.count(byte) >= "".join(texts).encode().count(byte)


@tolerant
@given(texts=records, before=st.integers(0, 60), after=st.integers(1, 30))
def test_a_reader_goes_on_from_any_window(tmp_path: Path, texts: list[str], before: int, after: int) -> None:
    reader = _reader(tmp_path, texts)
    for _ in range(before):
        reader.next_window()
    position = reader.position
    expected = [reader.next_window() for _ in range(after)]
    again = _reader(tmp_path, texts)
    again.seek(position)
    for window, done in expected:
        found, found_done = again.next_window()
        assert found_done == done
        np.testing.assert_array_equal(found, window)


@tolerant
@given(before=st.integers(0, 40))
def test_a_stream_of_several_domains_goes_on_from_its_cursor(tmp_path: Path, before: int) -> None:
    domains = [_domain(tmp_path, "natural", words(60, 3), 9), _domain(tmp_path, "code", code(12, 4), 5)]

    def stream() -> BatchStream:
        return BatchStream(domains, ChunkStore(tmp_path), context=CONTEXT, seed="7")

    first = stream()
    for _ in range(before):
        first.next_batch(3)
    cursor: dict[str, Any] = first.cursor()
    second = stream()
    second.seek(cursor)
    for _ in range(10):
        mine, theirs = first.next_batch(3), second.next_batch(3)
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1] == theirs[1]


def test_domains_finish_their_epochs_together(tmp_path: Path) -> None:
    domains = [_domain(tmp_path, "natural", words(400, 3), 20), _domain(tmp_path, "code", code(20, 4), 5)]
    stream = BatchStream(domains, ChunkStore(tmp_path), context=CONTEXT, seed="7")
    while min(position["epoch"] for position in stream.cursor().values()) < 1:
        stream.next_batch(4)
    assert {position["epoch"] for position in stream.cursor().values()} == {1}


def test_epochs_and_nodes_have_orders_of_their_own(tmp_path: Path) -> None:
    texts = words(200, 5)
    reader = _reader(tmp_path, texts)
    first = reader.next_window()[0].tobytes()
    while reader.position.epoch == 0:
        reader.next_window()
    assert reader.next_window()[0].tobytes() != first
    assert _reader(tmp_path, texts, seed="2").next_window()[0].tobytes() != first


def test_only_the_rows_of_the_share_are_read(tmp_path: Path) -> None:
    texts = [letter * 20 for letter in "abcdef"]
    (entry,) = write_chunks(tmp_path, texts, 6)
    domain = DomainConfig("d", "0" * 64, (RowRange(entry["sha256"], 1, 3),), ())
    reader = DomainReader(domain, ChunkStore(tmp_path), context=CONTEXT, seed="1")
    seen = b"".join(reader.next_window()[0].tobytes() for _ in range(50))
    assert set(seen) == set(b"\0bc")


def test_a_changed_share_begins_the_next_epoch(tmp_path: Path) -> None:
    reader = _reader(tmp_path, words(50, 1))
    for _ in range(5):
        reader.next_window()
    other = _reader(tmp_path, words(50, 2))
    other.seek(reader.position)
    assert (other.position.epoch, other.position.record, other.position.window) == (1, 0, 0)
    other.next_window()


def test_memory_is_bounded_by_a_shelf_of_ranges(tmp_path: Path) -> None:
    """The reader of 40 chunks opens at most four to give its first window."""
    directory = tmp_path / "chunks"
    domain = _domain(directory, "d", words(400, 1), 10)
    opened: list[str] = []

    class Watching(ChunkStore):
        def texts(self, chunk: str, start: int = 0, stop: int | None = None) -> list[bytes]:
            opened.append(chunk)
            return super().texts(chunk, start, stop)

    DomainReader(domain, Watching(directory), context=CONTEXT, seed="1").next_window()
    assert len(opened) == 4


def test_a_damaged_or_missing_chunk_is_named(tmp_path: Path) -> None:
    (entry,) = write_chunks(tmp_path, words(5, 1), 5)
    path = tmp_path / entry["sha256"]
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(WorkerError, match="a chunk is damaged"):
        ChunkStore(tmp_path).texts(entry["sha256"])
    with pytest.raises(WorkerError, match="a chunk is not here"):
        ChunkStore(tmp_path).texts("0" * 64)


def test_a_share_beyond_the_chunk_is_named(tmp_path: Path) -> None:
    (entry,) = write_chunks(tmp_path, words(5, 1), 5)
    with pytest.raises(WorkerError, match="fewer records than this node's share names"):
        ChunkStore(tmp_path).texts(entry["sha256"], 3, 6)


@pytest.mark.parametrize(
    "saved", [None, 5, {"epoch": 0}, {"epoch": -1, "record": 0, "window": 0, "shares": ""}]
)
def test_a_damaged_cursor_is_refused(tmp_path: Path, saved: Any) -> None:
    stream = BatchStream(
        [_domain(tmp_path, "d", words(9, 1), 3)], ChunkStore(tmp_path), context=CONTEXT, seed="1"
    )
    if saved is None:
        stream.seek({})
        return
    with pytest.raises(CheckpointError, match="cursor"):
        stream.seek({"d": saved})
