"""Parquet files as others write them: each is read right, or refused with a reason that names the column.

How the files were made is in `tests/data_files/make_parquet.py`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailtrain.data.build import build_dataset
from tailtrain.data.chunking import cut
from tailtrain.data.inspect import inspect_parquet
from tailtrain.data.reading import read_batches
from tailtrain.data.sources import Options
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

FILES = Path(__file__).parents[2] / "data_files"
WRITTEN: list[str | None] = json.loads((FILES / "texts.json").read_text())
TEXTS = [text or "" for text in WRITTEN]
RIGHT = sorted(path.name for path in FILES.glob("*.parquet") if not path.name.startswith("wrong-"))

WRONG = {
    "bytes-by-fastparquet": r"the column text does not hold text .found binary.*build parquet .*become text",
    "bytes-by-spark": r"the column text does not hold text .found binary.*build parquet .*become text",
    "encrypted-by-duckdb": "the parquet file is encrypted",
    "encrypted-column": "columns of the parquet file are encrypted",
    "encrypted-footer": "the parquet file is encrypted",
    "footer": "damaged: its footer cannot be read",
    "list": r"the column text does not hold text .found list<",
    "magic": r"not a parquet file .found a file that starts with b'ORC1'",
    "name-twice": "two columns of that name: text",
    "no-rows-by-polars": "has no records",
    "no-rows-by-spark": "has no records",
    "no-text-column": r"no text column .found the columns body .string., title .string.*--field COLUMN",
    "not-utf8": r"record 5 of the column text is not valid UTF-8 .found the byte 0xfc at 2.*build parquet",
    "number": r"the column text does not hold text .found int64",
    "struct": r"the column text does not hold text .found struct<",
    "truncated": "truncated: its end is missing",
}


def read(path: Path) -> list[str]:
    """All texts of a file, as they go into chunks."""
    batches = read_batches(inspect_parquet(path))
    return [text for batch in batches for text in batch.column("text").to_pylist()]


def test_every_common_writer_is_there() -> None:
    writers = {name.split("-")[0] for name in RIGHT}
    assert writers == {"arrow", "duckdb", "fastparquet", "pandas", "polars", "spark"}
    kinds: set[tuple[Any, ...]] = set()
    for name in RIGHT:
        metadata = pq.read_metadata(FILES / name)
        index = metadata.schema.names.index("text")
        column = metadata.row_group(0).column(index)
        kinds |= {("compression", column.compression), *(("encoding", each) for each in column.encodings)}
    assert kinds >= {
        *(("compression", name) for name in ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4")),
        *(("encoding", name) for name in ("PLAIN", "RLE_DICTIONARY", "PLAIN_DICTIONARY")),
        *(("encoding", name) for name in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")),
    }


@pytest.mark.parametrize("name", RIGHT)
def test_what_was_written_is_read(name: str) -> None:
    assert read(FILES / name) == TEXTS


@pytest.mark.parametrize("name", ["duckdb-types.parquet", "polars-nested.parquet", "spark-snappy.parquet"])
def test_what_was_written_is_cut_to_the_same_chunks(name: str, tmp_path: Path) -> None:
    manifest = cut(inspect_parquet(FILES / name), "natural", tmp_path / "chunks", heldout_fraction=0)
    chunks = [pq.read_table(tmp_path / "chunks" / chunk.sha256) for chunk in manifest.train]
    assert pa.concat_tables(chunks).column("text").to_pylist() == TEXTS


def test_sources_go_along_where_a_writer_has_them() -> None:
    file = inspect_parquet(FILES / "spark-v2.parquet")
    sources = [value for batch in read_batches(file) for value in batch.column("source").to_pylist()]
    assert sources[:4] == ["file 0", "file 1", "file 2", None]


def test_every_wrong_file_has_its_reason() -> None:
    assert {f"wrong-{name}.parquet" for name in WRONG} == {path.name for path in FILES.glob("wrong-*")}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_cannot_be_read_is_refused_with_its_reason(name: str) -> None:
    path = FILES / f"wrong-{name}.parquet"
    with pytest.raises(DataError, match=WRONG[name]) as caught:
        read(path)
    assert caught.value.field == str(path)


@pytest.mark.parametrize("name", ["spark-folder", "fastparquet-folder"])
def test_a_folder_of_parts_is_refused_with_the_command_that_joins_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"is a folder.*tailtrain dataset build parquet .*{name} --output"):
        inspect_parquet(FILES / name)
    summary = build_dataset("parquet", [FILES / name], tmp_path / "joined.parquet")
    assert not set(summary.skipped.counts) - {"empty", "hidden"}
    assert read(tmp_path / "joined.parquet") == kept(WRITTEN)


def test_an_index_of_parts_and_a_pattern_are_refused_with_the_command_that_joins_them() -> None:
    with pytest.raises(DataError, match=r"only the index.*found columns in part\.0\.parquet.*build parquet"):
        inspect_parquet(FILES / "fastparquet-folder" / "_metadata")
    with pytest.raises(DataError, match=r"named by a pattern.*build parquet .*/duckdb-\*\.parquet --output"):
        inspect_parquet(FILES / "duckdb-*.parquet")


def kept(texts: Iterable[str | None]) -> list[str]:
    """What building makes of texts: empty ones are left out, and newlines around them."""
    return [text.strip("\n") for text in texts if text and text.strip()]


@pytest.mark.parametrize("name", ["bytes-by-fastparquet", "bytes-by-spark", "not-utf8"])
def test_what_is_refused_can_be_written_anew(name: str, tmp_path: Path) -> None:
    summary = build_dataset("parquet", [FILES / f"wrong-{name}.parquet"], tmp_path / "anew.parquet")
    if name == "not-utf8":
        texts = [*WRITTEN[:5], "Gr\ufffd\ufffde in Latin-1", *WRITTEN[6:]]
        assert summary.skipped.counts["records with bad UTF-8, replaced by U+FFFD"] == 1
    else:
        texts = WRITTEN
    assert read(tmp_path / "anew.parquet") == kept(texts)


def test_another_column_can_be_named(tmp_path: Path) -> None:
    wrong = FILES / "wrong-no-text-column.parquet"
    build_dataset("parquet", [wrong], tmp_path / "anew.parquet", options=Options(field="title"))
    assert read(tmp_path / "anew.parquet") == kept(WRITTEN)
    with pytest.raises(DataError, match=r"no column of that name: nothing .found the columns body"):
        build_dataset("parquet", [wrong], tmp_path / "n.parquet", options=Options(field="nothing"))


def test_parts_without_rows_and_files_of_several_writers_are_joined_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    names = ["duckdb-v2", "polars-categorical", "spark-lz4", "wrong-no-rows-by-spark"]
    for name in names:
        shutil.copy(FILES / f"{name}.parquet", folder)
    build_dataset("parquet", [folder], tmp_path / "joined.parquet")
    assert read(tmp_path / "joined.parquet") == kept(WRITTEN) * 3
    sources = pq.read_table(tmp_path / "joined.parquet").column("source").to_pylist()
    assert "parts/polars-categorical.parquet" in sources, "where a record has none, its file is its source"
    seen: list[tuple[int, int]] = []
    build_dataset("parquet", [folder], tmp_path / "a.parquet", progress=lambda *at: seen.append(at))
    assert seen == sorted(seen)
    assert seen[-1][0] <= seen[-1][1]


def test_a_damaged_part_stops_the_joining_and_is_named(tmp_path: Path) -> None:
    shutil.copy(FILES / "duckdb-v2.parquet", tmp_path / "a.parquet")
    shutil.copy(FILES / "wrong-truncated.parquet", tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: the parquet file is truncated"):
        build_dataset("parquet", [tmp_path], tmp_path / "out" / "joined.parquet")
    assert not (tmp_path / "out" / "joined.parquet").exists()


@given(
    name=st.sampled_from([name for name in RIGHT if "arrow" in name or "polars" in name]),
    place=st.sampled_from(["pages", "footer"]),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3
    ),
)
@settings(
    deadline=None,
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_damaged_bytes_are_an_error_or_read_but_never_a_traceback(
    tmp_path: Path, name: str, place: str, changes: list[tuple[float, int]]
) -> None:
    content = bytearray((FILES / name).read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little") if place == "footer" else 4
    for at, value in changes:
        content[start + int(at * (len(content) - start - 4))] = value
    path = tmp_path / "damaged.parquet"
    path.write_bytes(content)
    try:
        read(path)
    except DataError as error:
        assert error.field == str(path)  # noqa: PT017 - it may also be read
