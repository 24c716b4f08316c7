"""Reading records: nothing skipped, nothing twice, resumable at any window by any node, nothing held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailtrain.errors import WorkerError
from tailtrain.worker.data_config import RowRange
from tailtrain.worker.reading import shelf_reader
from tailtrain.worker.reading.batches import Batch, BatchStream, Wanted
from tailtrain.worker.reading.reading_progress import NOTHING_READ, Progress, ShardProgress, epochs_of, join
from tailtrain.worker.reading.records import ChunkStore
from tailtrain.worker.reading.shards import Shard, Shards
from tailtrain.worker.reading.shelf_reader import ShelfReader
from tailtrain.worker.reading.takeover import parts_of
from tests.worker.conftest import code, words, write_chunks
from tests.worker.counting import records_read

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

CONTEXT = 16
WHOLE = None


def _shard(directory: Path, texts: list[str], *, rows: int = 7, seed: int = 1, **names: str) -> Shard:
    entries = write_chunks(directory, texts, rows)
    ranges = [RowRange(entry["sha256"], 0, entry["rows"]) for entry in entries]
    return Shard(names.get("domain", "d"), names.get("node", "n0"), ranges, seed=seed)


def _reader(shard: Shard, directory: Path, at: ShardProgress = NOTHING_READ) -> ShelfReader:
    reader = ShelfReader(shard, ChunkStore(directory), context=CONTEXT)
    reader.assign(at, WHOLE)
    return reader


def _stream(shards: Shards, directory: Path, fetch: Any = lambda _: None) -> BatchStream:
    return BatchStream(shards, ChunkStore(directory), context=CONTEXT, fetch=fetch)


def _draw(stream: BatchStream, size: int = 3) -> Batch:
    batch = stream.next_batch(size)
    assert batch is not None
    return batch


records = st.lists(st.text(alphabet="ab\n€", max_size=150), min_size=1, max_size=40)
tolerant = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@tolerant
@given(texts=records, seed=st.integers(0, 5))
def test_an_epoch_completes_every_record_once_and_holds_all_its_bytes(
    tmp_path: Path, texts: list[str], seed: int
) -> None:
    reader = _reader(_shard(tmp_path, texts, seed=seed), tmp_path)
    seen = bytearray()
    completed = 0
    while reader.progress.epoch == 0:
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
    shard = _shard(tmp_path, texts)
    reader = _reader(shard, tmp_path)
    for _ in range(before):
        reader.next_window()
    at = reader.progress
    expected = [reader.next_window() for _ in range(after)]
    again = _reader(shard, tmp_path, at)
    for window, done in expected:
        found, found_done = again.next_window()
        assert found_done == done
        np.testing.assert_array_equal(found, window)


def test_a_reader_that_cannot_have_all_shelves_open_goes_on_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each of the first windows, where some of the open shelves were not begun, and now and then later.

    What limits the shelves that are open is memory, or their number; both come to bear here.
    """
    monkeypatch.setattr(shelf_reader, "_BYTES_AT_HAND", 5000)
    monkeypatch.setattr(shelf_reader, "_MOST_OPEN", 5)
    texts = [text * (1 + 3 * (index % 5)) for index, text in enumerate(words(96, 3))]
    for seed in range(8):
        shard = _shard(tmp_path, texts, rows=1, seed=seed)
        reader = _reader(shard, tmp_path)

        def goes_on(windows: int, shard: Shard = shard, reader: ShelfReader = reader) -> None:
            again = _reader(shard, tmp_path, reader.progress)
            for _ in range(windows):
                assert again.next_window()[0].tobytes() == reader.next_window()[0].tobytes()

        for _ in range(12):
            at = reader.progress
            goes_on(8)
            reader.assign(at, WHOLE)
            reader.next_window()
        while reader.progress.epoch == 0:
            goes_on(97)


@tolerant
@given(before=st.integers(0, 40))
def test_a_stream_of_several_domains_goes_on_from_where_it_was(tmp_path: Path, before: int) -> None:
    shards = Shards(
        "n0",
        [
            _shard(tmp_path, words(60, 3), rows=9, domain="natural"),
            _shard(tmp_path, code(12, 4), rows=5, domain="code"),
        ],
        taken_over=True,
    )
    parts = parts_of(shards, {}, {})
    first, second = _stream(shards, tmp_path), _stream(shards, tmp_path)
    first.assign({}, parts)
    for _ in range(before):
        _draw(first)
    at = first.progress()
    first.assign(at, parts)  # as at the end of a round
    second.assign(at, parts)
    for _ in range(10):
        mine, theirs = _draw(first), _draw(second)
        np.testing.assert_array_equal(mine.windows, theirs.windows)
        assert mine.records == theirs.records


def test_domains_finish_their_epochs_together(tmp_path: Path) -> None:
    shards = Shards(
        "n0",
        [
            _shard(tmp_path, words(400, 3), rows=20, domain="natural"),
            _shard(tmp_path, code(20, 4), rows=5, domain="code"),
        ],
        taken_over=True,
    )
    stream = _stream(shards, tmp_path)
    stream.assign({}, parts_of(shards, {}, {}))
    while min(one.epoch for one in stream.progress().values()) < 1:
        _draw(stream, 4)
    assert {one.epoch for one in stream.progress().values()} == {1}


def test_epochs_and_seeds_have_orders_of_their_own(tmp_path: Path) -> None:
    texts = words(200, 5)
    reader = _reader(_shard(tmp_path, texts), tmp_path)
    first = reader.next_window()[0].tobytes()
    while reader.progress.epoch == 0:
        reader.next_window()
    assert reader.next_window()[0].tobytes() != first
    assert _reader(_shard(tmp_path, texts, seed=2), tmp_path).next_window()[0].tobytes() != first


def test_only_the_rows_of_the_share_are_read(tmp_path: Path) -> None:
    texts = [letter * 20 for letter in "abcdef"]
    (entry,) = write_chunks(tmp_path, texts, 6)
    reader = _reader(Shard("d", "n0", [RowRange(entry["sha256"], 1, 3)], seed=1), tmp_path)
    seen = b"".join(reader.next_window()[0].tobytes() for _ in range(50))
    assert set(seen) == set(b"\0bc")


@pytest.mark.parametrize(
    ("texts", "rows", "expected"),
    [
        pytest.param(["a" * 600_000] * 40, 1, 8, id="shelves of 2.4 MB: two are over 4 MiB"),
        pytest.param(words(800, 1), 2, 256, id="small ones: 64 at most"),
        pytest.param(["a" * 3_000_000] * 8, 1, 4, id="one of 12 MB is enough"),
    ],
)
def test_memory_is_bounded_by_the_text_at_hand(
    tmp_path: Path, texts: list[str], rows: int, expected: int
) -> None:
    """How many chunks are opened to give the first window."""
    directory = tmp_path / "chunks"
    shard = _shard(directory, texts, rows=rows)
    opened: list[str] = []

    class Watching(ChunkStore):
        def texts(self, chunk: str, start: int = 0, stop: int | None = None) -> list[bytes]:
            opened.append(chunk)
            return super().texts(chunk, start, stop)

    reader = ShelfReader(shard, Watching(directory), context=CONTEXT)
    reader.assign(NOTHING_READ, WHOLE)
    reader.next_window()
    assert len(opened) == expected


def test_a_batch_has_text_of_many_records(tmp_path: Path) -> None:
    """Of 100 records of 600 bytes, 32 windows of 16: as if each window were drawn from all of them."""
    texts = [chr(0x100 + index) * 300 for index in range(100)]
    reader = _reader(_shard(tmp_path, texts, rows=5), tmp_path)
    seen = [reader.next_window()[0].tobytes().decode(errors="ignore").strip("\0")[:1] for _ in range(32)]
    # Of 32 draws from 100, 27.5 are different in the mean and 22 or fewer once in a thousand times.
    assert len(set(seen)) > 22


def test_an_open_shelf_stays_open_from_round_to_round(tmp_path: Path) -> None:
    opened: list[str] = []

    class Watching(ChunkStore):
        def texts(self, chunk: str, start: int = 0, stop: int | None = None) -> list[bytes]:
            opened.append(chunk)
            return super().texts(chunk, start, stop)

    reader = ShelfReader(_shard(tmp_path, words(400, 1), rows=50), Watching(tmp_path), context=CONTEXT)
    reader.assign(NOTHING_READ, WHOLE)
    for _ in range(5):
        reader.next_window()
        reader.assign(reader.progress, WHOLE)
    assert len(opened) == 8, "both shelves, once"
    reader.assign(NOTHING_READ, WHOLE)  # a round was lost
    reader.next_window()
    assert len(opened) == 16


def test_a_damaged_or_missing_chunk_is_named(tmp_path: Path) -> None:
    (entry,) = write_chunks(tmp_path, words(5, 1), 5)
    _damage(tmp_path / entry["sha256"])
    with pytest.raises(WorkerError, match="a chunk is damaged"):
        ChunkStore(tmp_path).texts(entry["sha256"])
    with pytest.raises(WorkerError, match="a chunk is not here"):
        ChunkStore(tmp_path).texts("0" * 64)


def test_a_share_beyond_the_chunk_is_named(tmp_path: Path) -> None:
    (entry,) = write_chunks(tmp_path, words(5, 1), 5)
    with pytest.raises(WorkerError, match="fewer records than a node's share names"):
        ChunkStore(tmp_path).texts(entry["sha256"], 3, 6)


def _damage(path: Path) -> bytes:
    """Change a bit; what was there before."""
    content = path.read_bytes()
    changed = bytearray(content)
    changed[len(content) // 3] ^= 1
    path.write_bytes(changed)
    return content


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_shelves_whose_chunks_are_not_here_are_passed_over_until_they_are(tmp_path: Path, how: str) -> None:
    texts = words(120, 6)
    shard = _shard(tmp_path, texts, rows=10)  # twelve chunks, three shelves
    absent = shard.shelves(0)[0].ranges[2].chunk
    content = _damage(tmp_path / absent)
    if how == "missing":
        (tmp_path / absent).unlink()
    wanted: list[Sequence[Wanted]] = []
    store = ChunkStore(tmp_path)
    shards = Shards("n0", [shard], taken_over=True)
    stream = BatchStream(shards, store, context=CONTEXT, fetch=wanted.append)
    stream.assign({}, parts_of(shards, {}, {}))
    done = 0
    while (batch := stream.next_batch(4)) is not None:
        done += sum(batch.records.values())
    assert stream.progress() == {shard.key: ShardProgress(0, frozenset({1, 2}))}
    assert not stream.empty, "there is more as soon as it arrives"
    assert wanted[-1] == [Wanted(absent, "n0")]
    (tmp_path / absent).write_bytes(content)
    assert stream.next_batch(1) is None
    store.arrived(absent)
    while stream.progress()[shard.key].epoch == 0:
        done += sum(_draw(stream, 1).records.values())
    assert done == len(texts)
    assert wanted[-1] == []


def test_what_is_read_ahead_is_asked_for_in_time_and_no_more(tmp_path: Path) -> None:
    """Of a part whose chunks are all elsewhere: those of two shelves, then of the next as these are read."""
    shard = _shard(tmp_path / "away", words(400, 2), rows=10, node="n1")  # ten shelves
    own = _shard(tmp_path / "here", words(400, 3), rows=10)
    wanted: list[Sequence[Wanted]] = []
    store = ChunkStore(tmp_path / "here")
    shards = Shards("n0", [own, shard], taken_over=True)
    stream = BatchStream(shards, store, context=CONTEXT, fetch=wanted.append)
    stream.assign({}, parts_of(shards, {}, {"n0": 1.0}))
    shelves = shard.shelves(0)
    assert wanted[-1] == [Wanted(each.chunk, "n1") for shelf in shelves[:2] for each in shelf.ranges]
    for each in shelves[0].ranges:
        (tmp_path / "away" / each.chunk).rename(tmp_path / "here" / each.chunk)
        store.arrived(each.chunk)
    batch = _draw(stream, 1)
    while not batch.records.get("n1"):
        batch = _draw(stream, 1)
    assert wanted[-1] == [Wanted(each.chunk, "n1") for shelf in shelves[1:3] for each in shelf.ranges]


DOMAINS = (("natural", words, 9), ("code", code, 3))


def _fleet(directory: Path, sizes: Sequence[int], domains: Sequence[Any] = DOMAINS) -> list[Shards]:
    """The same shards as each node of a fleet sees them; all chunks in one folder."""
    made = [
        _shard(directory, texts(size, 10 * index), rows=rows, node=f"n{index}", domain=domain)
        for index, size in enumerate(sizes)
        for domain, texts, rows in domains
    ]
    return [Shards(f"n{index}", made, taken_over=True) for index in range(len(sizes))]


class _Run:
    """Nodes that read in rounds; who is there in each is decided by the test."""

    def __init__(self, directory: Path, fleet: list[Shards]) -> None:
        self.fleet = fleet
        self.streams = [_stream(shards, directory) for shards in fleet]
        self.progress: Progress = {}
        self.group: dict[str, float] = {}

    def round(
        self, present: Sequence[int], windows: int, lost: Collection[int] = ()
    ) -> dict[int, dict[str, int]]:
        """One round: those present read, and but for those who are lost within it, average and commit.

        Gives the records of each, by their owners.
        """
        work: dict[int, dict[str, int]] = {}
        for index in present:
            stream = self.streams[index]
            stream.assign(self.progress, parts_of(self.fleet[index], self.progress, self.group))
            batch = stream.next_batch(windows)
            work[index] = dict(batch.records) if batch is not None else {}
        work = {index: records for index, records in work.items() if index not in lost}
        self.progress = join([self.streams[index].progress() for index in work], self.fleet[0])
        self.group = {f"n{index}": float(sum(work[index].values())) for index in work}
        return work

    def done(self, node: str) -> list[float]:
        """Epochs done of a node's shards."""
        epochs = epochs_of(self.progress, self.fleet[0])
        return [sum(nodes[node]) for nodes in epochs.values()]


@pytest.mark.parametrize(("lost", "at", "windows"), [(0, 0, 9), (1, 1, 25), (2, 3, 9), (3, 2, 14)])
def test_an_epoch_that_others_took_over_trains_each_record_exactly_once(
    tmp_path: Path, lost: int, at: int, windows: int
) -> None:
    """A node is lost for good at the end of a round; its next epoch is with the others as well."""
    run = _Run(tmp_path, _fleet(tmp_path, (120, 90, 150, 60), DOMAINS[:1]))
    shard = run.fleet[0].by_key["natural", f"n{lost}"]
    trained = [0, 0, 0]
    helpers: set[int] = set()
    for number in range(300):
        epoch = run.progress.get(shard.key, NOTHING_READ).epoch
        if epoch == 2:
            break
        work = run.round([index for index in range(4) if number < at or index != lost], windows)
        trained[epoch] += sum(records.get(shard.node, 0) for records in work.values())
        helpers |= {index for index, records in work.items() if shard.node in records}
    assert trained == [shard.records, shard.records, 0]
    assert helpers >= {0, 1, 2, 3} - {lost}


def test_what_is_taken_over_ends_about_when_it_would_have(tmp_path: Path) -> None:
    run = _Run(tmp_path, _fleet(tmp_path, (300, 300, 300, 300)))
    while min(run.done("n3")) < 0.3:
        run.round(range(4), 40)
    while min(run.done("n3")) < 0.95:
        run.round(range(3), 40)
    for node in ("n0", "n1", "n2"):
        assert all(abs(done - 0.95) < 0.25 for done in run.done(node)), run.done(node)


def test_a_node_that_returns_has_its_shard_back_after_its_first_round(tmp_path: Path) -> None:
    run = _Run(tmp_path, _fleet(tmp_path, (300, 300, 300)))
    for _ in range(3):
        run.round(range(3), 30)
    for _ in range(3):
        work = run.round((0, 1), 30)
    assert any("n2" in records for records in work.values())
    first = run.round(range(3), 30)
    assert first[2] == {}, "its shelves are still with the others"
    assert any("n2" in records for records in (first[0], first[1]))
    second = run.round(range(3), 30)
    assert {index: set(records) for index, records in second.items()} == {0: {"n0"}, 1: {"n1"}, 2: {"n2"}}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Shards]]:
    """A small fleet's shards, and the folder with their chunks."""
    directory: Path = tmp_path_factory.mktemp("chunks")
    return directory, _fleet(directory, (90, 70, 120, 40))


@settings(max_examples=25, deadline=None)
@given(
    rounds=st.lists(
        st.tuples(st.frozensets(st.integers(0, 3), min_size=1), st.frozensets(st.integers(0, 3), max_size=2)),
        max_size=14,
    ),
    windows=st.integers(5, 60),
)
def test_whoever_comes_and_goes_what_counts_as_read_was_trained_once(
    written: tuple[Path, list[Shards]], rounds: list[tuple[frozenset[int], frozenset[int]]], windows: int
) -> None:
    """Nodes are lost between rounds and within them; what no averaging has committed counts for nothing."""
    directory, fleet = written
    run = _Run(directory, fleet)
    trained: dict[str, int] = {}
    for present, lost in rounds:
        if present <= lost:
            continue
        for records in run.round(sorted(present), windows, lost).values():
            for node, count in records.items():
                trained[node] = trained.get(node, 0) + count
    for node in fleet[0].nodes:
        read = sum(
            records_read(shard, run.progress.get(key, NOTHING_READ), directory, context=CONTEXT)
            for key, shard in fleet[0].by_key.items()
            if key[1] == node
        )
        assert trained.get(node, 0) == read
