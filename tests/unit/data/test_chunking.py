"""Cutting: every record in exactly one chunk, the split by content, and the same bytes every time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailtrain.data.chunking import chunk_limits, cut
from tailtrain.data.inspect import inspect_parquet
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tailtrain.data.manifest import ChunkFile, Manifest


def texts_of(chunks: Iterable[ChunkFile], folder: Path) -> list[str]:
    """Read chunks as a worker does, checking what the manifest says of them."""
    texts: list[str] = []
    for chunk in chunks:
        path = folder / chunk.sha256
        assert hashlib.sha256(path.read_bytes()).hexdigest() == chunk.sha256
        assert path.stat().st_size == chunk.bytes
        rows = pq.read_table(path).column("text").to_pylist()
        assert len(rows) == chunk.rows
        texts += rows
    return texts


def cut_texts(folder: Path, texts: list[str], *, fraction: float = 0.02) -> Manifest:
    path = folder / "texts.parquet"
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path)
    return cut(inspect_parquet(path), "natural", folder / "chunks", heldout_fraction=fraction)


@given(
    st.lists(st.text(max_size=20), min_size=1, max_size=60),
    st.floats(0, 1, exclude_max=True, allow_nan=False),
)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_record_is_on_exactly_one_side_and_equal_texts_on_the_same(
    tmp_path: Path, texts: list[str], fraction: float
) -> None:
    manifest = cut_texts(tmp_path, texts, fraction=fraction)
    train = texts_of(manifest.train, tmp_path / "chunks")
    heldout = texts_of(manifest.heldout, tmp_path / "chunks")
    assert Counter(train) + Counter(heldout) == Counter(texts)
    assert not set(train) & set(heldout)
    assert train, "there is always something to train on"
    if fraction > 0 and len(set(texts)) > 1:
        assert heldout, "and something to judge by"
    if fraction == 0:
        assert not heldout
    assert [text for text in texts if text in set(train)] == train, "order is kept"
    assert (manifest.train_records, manifest.heldout_records) == (len(train), len(heldout))
    assert manifest.train_text_bytes == sum(len(text.encode()) for text in train)
    assert manifest.heldout_text_bytes == sum(len(text.encode()) for text in heldout)
    counted = Counter("".join(train).encode())
    assert manifest.byte_counts == tuple(counted[value] for value in range(256))


def test_the_split_follows_the_documented_formula(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(2000)]
    manifest = cut_texts(tmp_path, texts, fraction=0.1)
    expected = [
        text
        for text in texts
        if int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < 0.1 * 2**64
    ]
    assert texts_of(manifest.heldout, tmp_path / "chunks") == expected
    assert 150 < len(expected) < 250


def test_what_is_held_out_stays_so_when_the_data_set_grows(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(150)]
    first = set(texts_of(cut_texts(tmp_path, texts, fraction=0.1).heldout, tmp_path / "chunks"))
    later = cut_texts(tmp_path, ["new at the start", *texts, "new at the end"], fraction=0.1)
    assert first <= set(texts_of(later.heldout, tmp_path / "chunks"))


@pytest.mark.parametrize("records", [256, 2776, 65_318])
def test_there_are_256_training_chunks_or_more_where_there_are_that_many_records(
    tmp_path: Path, records: int
) -> None:
    manifest = cut_texts(tmp_path, [str(number) for number in range(records)], fraction=0)
    assert len(manifest.train) >= 256
    assert len(manifest.train) < 512


def test_a_small_data_set_has_one_record_a_chunk(tmp_path: Path) -> None:
    manifest = cut_texts(tmp_path, ["a", "b", "c"], fraction=0)
    assert [chunk.rows for chunk in manifest.train] == [1, 1, 1]


def test_equal_records_still_make_chunks_of_different_names(tmp_path: Path) -> None:
    manifest = cut_texts(tmp_path, ["the same"] * 600)
    assert len({chunk.sha256 for chunk in manifest.train}) == len(manifest.train) >= 256


def test_chunk_sizes_follow_the_documented_formula() -> None:
    mb = 1 << 20
    assert chunk_limits(100, 100) == (1, mb)
    assert chunk_limits(64_000, 130 * mb) == (250, mb)
    assert chunk_limits(10**7, 10_240 * mb) == (39_062, 10 * mb)
    assert chunk_limits(10**9, 10**12) == (3_906_250, 64 * mb)


def test_a_chunk_holds_no_more_text_than_its_limit_and_a_long_record_stands_alone(tmp_path: Path) -> None:
    long = "x" * (3 << 20)
    texts = ["a" * 600_000, long, "b" * 600_000, "c" * 600_000] + ["d"] * 1020
    manifest = cut_texts(tmp_path, texts, fraction=0)
    assert [chunk.rows for chunk in manifest.train][:4] == [1, 1, 1, 4]


def test_two_cuts_give_the_same_manifest_and_bytes_whatever_the_row_groups(tmp_path: Path) -> None:
    """Also in another process, and from a file whose batches fall elsewhere."""
    table = pa.table({"text": [f"record {n}" * (n % 50) for n in range(2000)], "source": ["s"] * 2000})
    path = tmp_path / "texts.parquet"
    pq.write_table(table, path)
    first = cut(inspect_parquet(path), "natural", tmp_path / "one")
    code = (
        "import sys, pathlib; from tailtrain.data.inspect import inspect_parquet;"
        "from tailtrain.data.chunking import cut; p = pathlib.Path(sys.argv[1]);"
        "sys.stdout.buffer.write(cut(inspect_parquet(p), 'natural', p.parent / 'two').encode())"
    )
    second = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True).stdout
    assert second == first.encode()
    pq.write_table(table, path, row_group_size=77)
    third = cut(inspect_parquet(path), "natural", tmp_path / "three")
    assert (third.train, third.heldout) == (first.train, first.heldout)
    for chunk in first.chunks:
        assert (tmp_path / "one" / chunk.sha256).read_bytes() == (
            tmp_path / "two" / chunk.sha256
        ).read_bytes()


NULLS = ["one", None, "three", "", None] * 20


def by_pyarrow(**options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pq.write_table(pa.table({"text": pa.array(NULLS, pa.string())}), path, **options)

    return write


def by_type(kind: pa.DataType) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table({"text": pa.array(NULLS, pa.string()).cast(kind)}), path)


def with_empty_row_groups(path: Path) -> None:
    table = pa.table({"text": pa.array(NULLS, pa.string())})
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table.slice(0, 0))
        for start in range(0, len(NULLS), 7):
            writer.write_table(table.slice(start, 7))
        writer.write_table(table.slice(0, 0))


def beside_nested_columns(path: Path) -> None:
    extra = pa.array([{"a": [1, 2], "b": {"c": "x"}}] * len(NULLS))
    pq.write_table(
        pa.table({"meta": extra, "text": pa.array(NULLS, pa.string()), "tags": [["x"]] * 100}), path
    )


@pytest.mark.parametrize(
    "write",
    [
        *(
            pytest.param(by_pyarrow(compression=name), id=name)
            for name in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
        ),
        pytest.param(by_pyarrow(use_dictionary=False, data_page_version="2.0"), id="plain-v2"),
        pytest.param(by_pyarrow(column_encoding="DELTA_BYTE_ARRAY", use_dictionary=False), id="delta"),
        pytest.param(by_pyarrow(row_group_size=3), id="small-row-groups"),
        pytest.param(by_pyarrow(store_schema=False), id="no-arrow-schema"),
        pytest.param(by_type(pa.large_string()), id="large_string"),
        pytest.param(by_type(pa.string_view()), id="string_view"),
        pytest.param(by_type(pa.dictionary(pa.int8(), pa.large_string())), id="dictionary"),
        pytest.param(with_empty_row_groups, id="empty-row-groups"),
        pytest.param(beside_nested_columns, id="nested-columns"),
    ],
)
def test_files_of_all_common_writers_are_read_alike(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """A null text is an empty record: it is kept, so that all records of the file are accounted for."""
    path = tmp_path / "file.parquet"
    write(path)
    manifest = cut(inspect_parquet(path), "natural", tmp_path / "chunks", heldout_fraction=0)
    assert texts_of(manifest.train, tmp_path / "chunks") == [text or "" for text in NULLS]


def test_source_and_language_go_along_and_the_text_column_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "code.parquet"
    columns = {
        "language": ["Python", None],
        "content": ["x = 1", "y"],
        "source": ["a.py", "b"],
        "size": [5, 1],
    }
    pq.write_table(pa.table(columns), path)
    manifest = cut(inspect_parquet(path), "coding", tmp_path / "chunks", heldout_fraction=0)
    rows = [
        row
        for chunk in manifest.train
        for row in pq.read_table(tmp_path / "chunks" / chunk.sha256).to_pylist()
    ]
    assert rows == [
        {"text": "x = 1", "source": "a.py", "language": "Python"},
        {"text": "y", "source": "b", "language": None},
    ]
    assert (manifest.text_column, manifest.domain, manifest.file) == ("content", "coding", "code.parquet")
    assert dict(manifest.columns)["size"] == "int64"


def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"text": bad}), path)
    with pytest.raises(DataError, match=r"record 1 of the column text is not valid UTF-8.*0xff at 0"):
        cut(inspect_parquet(path), "natural", tmp_path / "chunks")


def test_damage_inside_the_file_is_found_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    rows = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(20_000)]
    pq.write_table(pa.table({"text": rows}), path, compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 1000] = bytes(1000)
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read beyond record"):
        cut(inspect_parquet(path), "natural", tmp_path / "chunks")
    assert not list(tmp_path.glob("chunks/.*"))


def test_a_file_that_changes_while_it_is_cut_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": ["a", "b"]}), path)

    def touch(_done: int, _total: int) -> None:
        path.touch()

    with pytest.raises(DataError, match="changed while it was cut"):
        cut(inspect_parquet(path), "natural", tmp_path / "chunks", progress=touch)


@pytest.mark.parametrize("fraction", [-0.1, 1, float("nan")])
def test_a_heldout_fraction_out_of_range_is_an_error(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(DataError, match="heldout_fraction: the held-out fraction is out of range"):
        cut_texts(tmp_path, ["a", "b"], fraction=fraction)


def test_progress_counts_each_record_twice_and_ends_at_the_total(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": [str(number) for number in range(1100)]}), path)
    seen: list[tuple[int, int]] = []
    cut(inspect_parquet(path), "natural", tmp_path / "chunks", progress=lambda *at: seen.append(at))
    assert seen == sorted(seen)
    assert seen[-1] == (2200, 2200)
