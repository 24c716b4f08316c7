"""Cutting takes less than 300 MB whatever is in the file, or the file is refused before it takes more.

Each file here is of a kind that made readers take much more: measured in a process of its own. The peak is
VmHWM and not what getrusage says: that one starts with what the parent had when it forked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMIT_MB = 300
MB = 1 << 20

PROGRAM = """
import json, pathlib, re, sys
from tailtrain.data import chunking
from tailtrain.data.build import build_dataset
from tailtrain.data.inspect import inspect_parquet
from tailtrain.errors import DataError
path, what = pathlib.Path(sys.argv[1]), sys.argv[2]
if what == "chunks of a terabyte":
    chunking.chunk_limits = lambda records, size: (1 << 30, 64 << 20)
said = {"records": 0, "problem": ""}
try:
    if what == "write anew":
        said["records"] = build_dataset("parquet", [path], path.parent / "anew.parquet").records
    else:
        said["records"] = chunking.cut(inspect_parquet(path), "natural", path.parent / "chunks").records
except DataError as error:
    said["problem"] = str(error)
status = pathlib.Path("/proc/self/status").read_text()
print(json.dumps(said | {"peak_mb": int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) / 1024}))
"""


def run(path: Path, what: str = "cut") -> dict[str, Any]:
    """Cut a file in a process of its own; how many records, what was wrong, the most memory."""
    argv = [sys.executable, "-c", PROGRAM, str(path), what]
    said: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    return said


def words(rows: int, size: int) -> pa.Array:
    """Different texts of this many bytes."""
    return pa.array([f"{number * 2654435761 % 2**32:08x} words " * (size // 15) for number in range(rows)])


def one_row_group(path: Path) -> int:
    table = pa.table({"text": pa.chunked_array([words(2000, 4000)] * 20)})
    pq.write_table(table, path, row_group_size=table.num_rows, use_dictionary=False)
    return len(table)


def one_page(path: Path) -> int:
    """As DuckDB writes: pages of 100 MB."""
    table = pa.table({"text": pa.chunked_array([words(2000, 2000)] * 25)})
    pages = {"data_page_size": 128 * MB, "write_batch_size": 10**6, "max_rows_per_page": 10**6}
    pq.write_table(table.combine_chunks(), path, use_dictionary=False, **pages)
    return len(table)


def uneven_rows(path: Path) -> int:
    """The mean is tiny, and 750 neighbours are not: a batch of as many rows as the mean allows has 225 MB."""
    tiny, large = pa.array(["tiny"] * 200_000), words(1, 300_000)[0].as_py()
    parts = [tiny, *(pa.array([f"{number}{large}" for number in range(250)]) for _ in range(3))]
    table = pa.table({"text": pa.chunked_array(parts)})
    pq.write_table(table, path, use_dictionary=False, row_group_size=table.num_rows)
    return len(table)


def one_text_many_times(path: Path) -> int:
    """A dictionary of one text: 200 kB in the file, 150 MB when it is read."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 750, pa.int32()), words(1, 200_000))
    pq.write_table(pa.table({"text": column}), path)
    return 750


def shared_prefixes(path: Path) -> int:
    """As Spark may write: each text is what it has in common with the one before, and the rest."""
    start = words(1, 200_000)[0].as_py()
    texts = pa.array([f"{start}{number}" for number in range(750)])
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY")
    return 750


def many_tiny_records(path: Path) -> int:
    pq.write_table(pa.table({"text": pa.array(f"{number:020}" for number in range(500_000))}), path)
    return 500_000


def a_text_of_16_mb(path: Path) -> int:
    texts = pa.chunked_array([words(100, 2000), words(1, 16 * MB), words(100, 2000)])
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=False)
    return 201


def long_sources(path: Path) -> int:
    """What goes along takes memory too."""
    columns = {"text": pa.array([str(number) for number in range(600)]), "source": words(600, 200_000)}
    pq.write_table(pa.table(columns), path, use_dictionary=False)
    return 600


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (one_row_group, "cut"),
        (one_row_group, "chunks of a terabyte"),
        (one_page, "chunks of a terabyte"),
        (uneven_rows, "cut"),
        (one_text_many_times, "cut"),
        (shared_prefixes, "cut"),
        (many_tiny_records, "cut"),
        (a_text_of_16_mb, "cut"),
        (long_sources, "cut"),
    ],
)
def test_cutting_takes_less_than_300_mb(tmp_path: Path, write: Callable[[Path], int], what: str) -> None:
    records = write(tmp_path / "file.parquet")
    said = run(tmp_path / "file.parquet", what)
    assert (said["problem"], said["records"]) == ("", records)
    assert said["peak_mb"] < LIMIT_MB


def one_huge_text(path: Path) -> None:
    pq.write_table(pa.table({"text": words(1, 32 * MB)}), path, use_dictionary=False)


def a_huge_text_among_others(path: Path) -> None:
    texts = pa.chunked_array([words(100, 2000), words(1, 48 * MB), words(100, 2000)])
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=False)


def one_huge_dictionary(path: Path) -> None:
    texts = pa.chunked_array([words(20_000, 2000)])
    pq.write_table(pa.table({"text": texts}), path, dictionary_pagesize_limit=10**9)


def one_huge_page(path: Path) -> None:
    """As fastparquet writes: a row group is a page."""
    table = pa.table({"text": pa.chunked_array([words(2000, 4000)] * 18)}).combine_chunks()
    pages = {"data_page_size": 256 * MB, "write_batch_size": 10**6, "max_rows_per_page": 10**6}
    pq.write_table(table, path, use_dictionary=False, **pages)


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (one_huge_text, "the column text has a page of 1 rows that takes too much memory"),
        (a_huge_text_among_others, "a text in the column text is too long to train on"),
        (one_huge_dictionary, "the column text has a dictionary that takes too much memory"),
        (one_huge_page, "the column text has a page of 36000 rows that takes too much memory"),
    ],
)
def test_what_would_take_more_is_refused_with_the_command_that_writes_it_anew(
    tmp_path: Path, write: Callable[[Path], None], problem: str
) -> None:
    path = tmp_path / "file.parquet"
    write(path)
    said = run(path)
    assert problem in said["problem"]
    assert f"tailtrain dataset build parquet {path} --output FILE" in said["problem"]
    assert said["peak_mb"] < LIMIT_MB


@pytest.mark.parametrize(("write", "records"), [(one_huge_text, 2049), (one_huge_dictionary, 20_000)])
def test_what_is_written_anew_is_cut(tmp_path: Path, write: Callable[[Path], None], records: int) -> None:
    write(tmp_path / "file.parquet")
    assert run(tmp_path / "file.parquet", "write anew")["records"] == pytest.approx(records, abs=2)
    assert run(tmp_path / "anew.parquet")["problem"] == ""
