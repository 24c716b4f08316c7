"""Building data sets: from what people have, with everything that is left out counted and named."""

from __future__ import annotations

import gzip
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailtrain.data.build import Kind, Summary, build_dataset
from tailtrain.data.inspect import inspect_parquet
from tailtrain.data.sources import Options
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    folder = tmp_path / "inputs"
    folder.mkdir()
    return folder


def build(kind: Kind, *inputs: Path, **options: Any) -> tuple[list[dict[str, Any]], Summary]:
    """Build beside the first input; the rows and the summary."""
    output = inputs[0].parent / "out" / "set.parquet"
    summary = build_dataset(kind, inputs, output, options=Options(**options))
    rows = pq.read_table(output).to_pylist()
    assert summary.records == len(rows)
    assert summary.file_bytes == output.stat().st_size
    assert summary.text_bytes == sum(len((row.get("text") or row.get("content")).encode()) for row in rows)
    assert list(output.parent.iterdir()) == [output]
    assert inspect_parquet(output).records == len(rows), "what is built can be trained on"
    return rows, summary


def test_text_files_are_read_in_the_order_of_their_names_also_gzipped(inputs: Path) -> None:
    (inputs / "b.txt").write_text("second")
    (inputs / "sub").mkdir()
    (inputs / "sub" / "d").write_text("fourth")
    (inputs / "c.gz").write_bytes(gzip.compress(b"third\n"))
    (inputs / "a.txt").write_bytes(b"\xef\xbb\xbffirst\r\nline\r\n")
    rows, summary = build("text", inputs)
    assert rows == [
        {"text": "first\nline", "source": "inputs/a.txt", "language": None},
        {"text": "second", "source": "inputs/b.txt", "language": None},
        {"text": "third", "source": "inputs/c.gz", "language": None},
        {"text": "fourth", "source": "inputs/sub/d", "language": None},
    ]
    assert not summary.skipped.counts


def test_what_is_no_text_is_left_out_and_counted(inputs: Path) -> None:
    (inputs / "good.txt").write_text("good")
    (inputs / "binary").write_bytes(b"\x7fELF\0\0")
    (inputs / "late-binary").write_bytes(b"x" * 9000 + b"\0")
    (inputs / "latin1").write_bytes("é ".encode("latin-1") * 100)
    (inputs / "blemished").write_bytes(b"almost " * 100 + b"\xff good")
    (inputs / "empty").write_bytes(b"")
    (inputs / "blank").write_bytes(b" \n\n\t")
    (inputs / "cut.gz").write_bytes(gzip.compress(b"some text that is long enough" * 50)[:-12])
    (inputs / "no.gz").write_bytes(b"not gzip at all")
    (inputs / ".hidden").write_text("hidden")
    (inputs / "link").symlink_to("good.txt")
    (inputs / "loop").symlink_to(".")
    os.mkfifo(inputs / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(os.path.relpath(inputs / "socket"))
    rows, summary = build("text", inputs)
    assert [row["text"] for row in rows if row["source"] != "inputs/cut.gz"] == [
        "almost " * 100 + "\ufffd good",
        "good",
    ]
    assert summary.skipped.counts == {
        "binary": 2,
        "not UTF-8 text": 1,
        "records with bad UTF-8, replaced by U+FFFD": 1,
        "empty": 1,
        "damaged gzip": 2,
        "hidden": 1,
        "symbolic link": 2,
        "not a regular file": 2,
    }
    assert summary.skipped.examples["not UTF-8 text"] == ["inputs/latin1"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_counted(inputs: Path) -> None:
    (inputs / "good").write_text("good")
    (inputs / "secret").write_text("secret")
    (inputs / "secret").chmod(0)
    (inputs / "closed").mkdir(mode=0)
    assert build("text", inputs)[1].skipped.counts == {"cannot be read": 2}


def test_a_file_whose_name_is_no_text_is_read_all_the_same(inputs: Path) -> None:
    with open(os.fsencode(inputs) + b"/\xff.txt", "w", encoding="utf-8") as stream:  # noqa: PTH123 - bytes
        stream.write("content")
    assert build("text", inputs)[0] == [{"text": "content", "source": "inputs/\ufffd.txt", "language": None}]


def test_an_input_given_twice_or_inside_another_is_read_once(inputs: Path) -> None:
    (inputs / "a.txt").write_text("a")
    assert len(build("text", inputs, inputs / "a.txt", inputs)[0]) == 1


def test_long_texts_are_cut_at_paragraphs_and_never_inside_a_character(inputs: Path) -> None:
    paragraphs = [f"paragraph {number} " * 5 for number in range(50)]
    (inputs / "a.txt").write_text("\n\n".join(paragraphs))
    (inputs / "b.txt").write_text("é" * 501)
    rows, _ = build("text", inputs, max_record_bytes=500)
    cut = [row["text"] for row in rows if row["source"].endswith("a.txt")]
    assert "\n\n".join(cut) == "\n\n".join(paragraphs)
    assert all(len(text.encode()) <= 500 for text in cut)
    assert [row["text"] for row in rows if row["source"].endswith("b.txt")] == ["é" * 250, "é" * 250, "é"]


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff")), st.integers(64, 200)
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_cutting_loses_nothing_but_newlines_and_blank_records(inputs: Path, text: str, limit: int) -> None:
    (inputs / "a.txt").write_text("start " + text + " end", newline="")
    rows, _ = build("text", inputs, max_record_bytes=limit)
    assert "".join("".join(row["text"].split()) for row in rows) == "".join(f"start {text} end".split())
    assert all(len(row["text"].encode()) <= limit for row in rows)


def test_source_trees_give_content_and_language_and_nothing_else(inputs: Path) -> None:
    (inputs / "main.py").write_text("print(1)\n")
    (inputs / "lib.rs").write_text("fn main() {}\n")
    (inputs / "Makefile").write_text("all:\n\ttrue\n")
    (inputs / "notes.txt").write_text("not code")
    (inputs / ".git").mkdir()
    (inputs / ".git" / "hook.py").write_text("hidden")
    rows, summary = build("code", inputs)
    assert [(row["source"], row["language"]) for row in rows] == [
        ("inputs/Makefile", "Makefile"),
        ("inputs/lib.rs", "Rust"),
        ("inputs/main.py", "Python"),
    ]
    assert rows[2]["content"] == "print(1)"
    assert summary.skipped.counts == {"hidden": 1}


def test_long_source_files_are_cut_before_top_level_statements(inputs: Path) -> None:
    functions = [f"def f{number}(\n    a,\n):\n    x = 1\n\n    return a\n" for number in range(30)]
    (inputs / "long.py").write_text("\n\n".join(functions))
    rows, _ = build("code", inputs, max_record_bytes=200)
    assert len(rows) > 5
    assert all(row["content"].startswith("def f") and row["content"].endswith("return a") for row in rows)


def test_json_lines_give_text_source_and_language(inputs: Path) -> None:
    (inputs / "a.jsonl").write_text(
        '{"id": "1", "text": "one", "source": "wiki", "language": "en"}\n\n'
        '{"id": "2", "text": "two"}\n{"text": null}\n'
    )
    (inputs / "b.ndjson.gz").write_bytes(gzip.compress(b'{"body": "three", "source": 3}'))
    (inputs / "readme.txt").write_text("not looked at")
    rows, summary = build("jsonl", inputs)
    assert rows == [
        {"text": "one", "source": "wiki", "language": "en"},
        {"text": "two", "source": "inputs/a.jsonl", "language": None},
        {"text": "three", "source": "inputs/b.ndjson.gz", "language": None},
    ]
    assert summary.skipped.counts == {"no text in text": 1}


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ('{"text": "a"}\n{"text": \n', {}, r"a\.jsonl:2: the line is not a JSON object"),
        ('{"text": "a"}\n["text"]\n', {}, r"a\.jsonl:2: the line is not a JSON object"),
        ('{"text": "a"}\n{"text": "\\ud800"}\n', {}, r"a\.jsonl:2: the line is not a JSON object"),
        ('{"text": "a"}\n{"text": 1}\n', {}, r"a\.jsonl:2: the field text is not a text .found int"),
        ('{"x": "a", "y": "b"}\n', {}, r"a\.jsonl:1: which field is the text.*fields x, y"),
        ('{"x": "a", "y": "b"}\n', {"skip_bad_lines": True}, "which field is the text"),
        ('{"x": "a"}\n', {"field": "z"}, "no record in what was given .found 1 no text in z"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(
    inputs: Path, lines: str, options: dict[str, Any], message: str
) -> None:
    (inputs / "a.jsonl").write_text(lines)
    with pytest.raises(DataError, match=message):
        build("jsonl", inputs, **options)
    assert not (inputs.parent / "out" / "set.parquet").exists()


def test_bad_lines_are_counted_where_that_is_asked_for(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": "\xff"}\nnonsense\n{"text": "b"}')
    rows, summary = build("jsonl", inputs, skip_bad_lines=True)
    assert [row["text"] for row in rows] == ["a", "b"]
    assert summary.skipped.examples == {"bad line": [f"{inputs}/a.jsonl:2", f"{inputs}/a.jsonl:3"]}


def test_another_field_may_be_named(inputs: Path) -> None:
    (inputs / "a.jsonl").write_text('{"text": "no", "answer": "yes"}')
    assert build("jsonl", inputs / "a.jsonl", field="answer")[0][0]["text"] == "yes"


def make_database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


def test_a_database_gives_its_text_column_in_the_order_of_its_rows(inputs: Path) -> None:
    path = make_database(
        inputs / "odd name?#%.db",
        'CREATE TABLE "my notes" (id INTEGER, content, source TEXT)',
        "CREATE TABLE other (number INTEGER)",
        "INSERT INTO \"my notes\" VALUES (2, 'first', 'here'), (1, 'second', NULL), (3, NULL, 'x'), "
        "(4, 5, 'x'), (5, CAST(x'ff41' AS TEXT), 'x'), (6, x'00', 'x'), (7, '', 'x')",
    )
    before = path.read_bytes()
    rows, summary = build("sqlite", inputs)
    assert rows == [
        {"text": "first", "source": "here", "language": None},
        {"text": "second", "source": "inputs/odd name?#%.db/my notes", "language": None},
        {"text": "\ufffdA", "source": "x", "language": None},
    ]
    assert summary.skipped.counts == {
        "empty": 2,
        "not text": 2,
        "records with bad UTF-8, replaced by U+FFFD": 1,
    }
    assert path.read_bytes() == before
    assert list(inputs.iterdir()) == [path], "nothing is written beside a database that is only read"


def test_a_view_or_a_table_without_row_numbers_has_an_order_too(inputs: Path) -> None:
    path = make_database(
        inputs / "a.sqlite",
        "CREATE TABLE t (text TEXT PRIMARY KEY) WITHOUT ROWID",
        "INSERT INTO t VALUES ('b'), ('a')",
        "CREATE VIEW v AS SELECT text AS body FROM t ORDER BY text DESC",
    )
    assert [row["text"] for row in build("sqlite", path, table="t")[0]] == ["a", "b"]
    assert [row["text"] for row in build("sqlite", path, table="v")[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"cannot be told .found one\(text\); two\(text, title\)"),
        ({"table": "three"}, "there is no table three"),
        ({"field": "nothing"}, "cannot be told.*expected one table with a column nothing"),
        ({"table": "one", "field": "title"}, "cannot be told"),
    ],
)
def test_a_table_that_cannot_be_told_is_an_error_that_lists_them(
    inputs: Path, options: dict[str, str], message: str
) -> None:
    path = make_database(inputs / "a.db", "CREATE TABLE one (text)", "CREATE TABLE two (text, title)")
    with pytest.raises(DataError, match=message):
        build("sqlite", path, **options)


def test_a_table_and_column_may_be_named(inputs: Path) -> None:
    path = make_database(
        inputs / "a.db",
        "CREATE TABLE one (text)",
        "CREATE TABLE two (text, title)",
        "INSERT INTO two VALUES ('text', 'title')",
    )
    assert build("sqlite", path, table="two", field="title")[0][0]["text"] == "title"


def test_what_is_no_database_is_an_error(inputs: Path) -> None:
    (inputs / "a.db").write_text("this is not a database, but long enough to be looked at as one")
    with pytest.raises(DataError, match=r"a\.db: the database cannot be read .found file is not a database"):
        build("sqlite", inputs)


def test_a_missing_input_is_an_error(inputs: Path) -> None:
    with pytest.raises(DataError, match=r"none: the input cannot be read .found No such file"):
        build("text", inputs / "none")


def test_nothing_found_is_an_error_that_says_what_was_left_out_and_keeps_the_old_output(inputs: Path) -> None:
    (inputs / "a.txt").write_text("good")
    build("text", inputs)
    (inputs / "a.txt").write_bytes(b"\0")
    with pytest.raises(DataError, match=r"there is no record in what was given .found 1 binary"):
        build("text", inputs)
    assert inspect_parquet(inputs.parent / "out" / "set.parquet").records == 1


def test_an_output_that_cannot_be_written_is_an_error(inputs: Path) -> None:
    (inputs / "a.txt").write_text("good")
    with pytest.raises(DataError, match="parquet file cannot be written"):
        build_dataset("text", [inputs], inputs / "a.txt" / "set.parquet")


def test_the_same_inputs_give_the_same_bytes(inputs: Path) -> None:
    for number in range(20):
        (inputs / f"{number}.txt").write_text(f"text {number}\n\n" * 100)
    first = inputs.parent / "first.parquet"
    second = inputs.parent / "second.parquet"
    build_dataset("text", [inputs], first)
    build_dataset("text", [inputs], second)
    assert first.read_bytes() == second.read_bytes()


def test_progress_ends_at_the_total(inputs: Path) -> None:
    for number in range(3):
        (inputs / f"{number}.txt").write_text("four")
    seen: list[tuple[int, int]] = []
    build_dataset("text", [inputs], inputs.parent / "o.parquet", progress=lambda *at: seen.append(at))
    assert seen == [(4, 12), (8, 12), (12, 12)]


def test_memory_stays_bounded_for_one_huge_file(inputs: Path) -> None:
    """240 MB in one file: read block by block, written group by group."""
    with (inputs / "huge.txt").open("w") as stream:
        for number in range(2800):
            stream.write(f"line {number} of the text\n" * 4000 + "\n")
    assert (inputs / "huge.txt").stat().st_size > 220 << 20
    code = (
        "import sys, pathlib, re; from tailtrain.data.build import build_dataset;"
        "p = pathlib.Path(sys.argv[1]); s = build_dataset('text', [p], p.parent / 'o.parquet');"
        "status = pathlib.Path('/proc/self/status').read_text();"
        "print(s.text_bytes, re.search(r'VmHWM:\\s+(\\d+) kB', status)[1])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(inputs)], capture_output=True, check=True, text=True
    )
    text_bytes, peak_kb = map(int, run.stdout.split())
    assert text_bytes > 220 << 20
    assert peak_kb < 200 << 10, "less than the text, with the interpreter and pyarrow in it"
