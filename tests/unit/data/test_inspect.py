"""Inspecting a parquet file: everything is read from it, and everything wrong with it is said plainly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailtrain.data import inspect
from tailtrain.data.inspect import inspect_parquet
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_records_bytes_and_schema_are_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "prose.parquet"
    pq.write_table(
        pa.table({"id": [1, 2], "text": ["a", "b"], "source": ["x", "y"], "language": [1, 2]}), path
    )
    file = inspect_parquet(path)
    assert (file.records, file.bytes) == (2, path.stat().st_size)
    assert file.columns == (("id", "int64"), ("text", "string"), ("source", "string"), ("language", "int64"))
    assert file.text_column == "text"
    assert file.about_columns == ("source",), "a language that is no string does not go along"


@pytest.mark.parametrize(
    ("columns", "wanted", "found"),
    [
        (["content", "language"], None, "content"),
        (["code"], None, "code"),
        (["content", "text"], None, "text"),
        (["content", "text"], "content", "content"),
        (["body"], "body", "body"),
    ],
)
def test_the_text_column_is_found_or_named(
    tmp_path: Path, columns: list[str], wanted: str | None, found: str
) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({name: ["x"] for name in columns}), path)
    assert inspect_parquet(path, text_column=wanted).text_column == found


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_every_way_to_store_strings_is_text(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"text": pa.array(["a", "b", "a"]).cast(kind)}), path)
    assert inspect_parquet(path).records == 3


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([1], "int64"),
        ([b"a"], "binary"),
        ([["a"]], "list<"),
        ([{"text": "a"}], "struct<"),
    ],
)
def test_a_text_column_of_another_type_is_refused(tmp_path: Path, column: list[object], kind: str) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"text": column}), path)
    with pytest.raises(DataError, match=rf"{path}: the column text does not hold text \(found {kind}"):
        inspect_parquet(path)


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


def write_no_rows(path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)


def write_truncated(path: Path) -> None:
    pq.write_table(pa.table({"text": ["some text"] * 100}), path)
    path.write_bytes(path.read_bytes()[:-20])


def write_bad_footer(path: Path) -> None:
    path.write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")


def write_json(path: Path) -> None:
    path.write_bytes(b'{"text": "not parquet"}\n')


def write_other_columns(path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "body": ["x"]}), path)


def write_twice_text(path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), path)


def write_encrypted(path: Path) -> None:
    path.write_bytes(b"PARE" + b"\0" * 20 + b"PARE")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda _: None, "file is missing"),
        (lambda path: path.mkdir(), "is a folder"),
        (write_nothing, "is empty .found 0 bytes"),
        (write_no_rows, "has no records"),
        (write_truncated, "truncated: its end is missing"),
        (write_bad_footer, "damaged: its footer cannot be read"),
        (write_json, "not a parquet file .found a file that starts with"),
        (write_other_columns, r"has no text column .found the columns id .int64., body .string."),
        (write_twice_text, "two columns of that name"),
        (write_encrypted, "is encrypted"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(
    tmp_path: Path, write: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "wrong.parquet"
    write(path)
    with pytest.raises(DataError, match=message) as caught:
        inspect_parquet(path)
    assert caught.value.field == str(path)


def test_a_file_of_very_many_row_groups_is_refused_unless_it_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "_MOST_FOOTER_BYTES", 10_000)
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"text": [str(number) for number in range(300)]}), path, row_group_size=1)
    with pytest.raises(DataError, match=r"footer takes too much memory: .*dataset build parquet"):
        inspect_parquet(path)
    assert inspect_parquet(path, to_convert=True).records == 300


def test_a_named_column_that_is_not_there_is_an_error(parquet: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="no column of that name: body"):
        inspect_parquet(parquet(["a"]), text_column="body")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_an_error(parquet: Callable[..., Path]) -> None:
    path = parquet(["a"])
    path.chmod(0)
    with pytest.raises(DataError, match=r"cannot be read .found Permission denied"):
        inspect_parquet(path)
