"""Records from what people have: text files, JSON lines, SQLite databases and source trees.

Each source yields records in a fixed order, holds little of it in memory, and counts what it leaves out. Long
texts become several records, cut at paragraphs, or in code at top-level statements.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tailtrain.data.files import (
    CODE_BREAKS,
    PROSE_BREAKS,
    UNREADABLE,
    Found,
    Skipped,
    decode,
    find,
    open_binary,
    split_text,
    text_pieces,
    why_unreadable,
)
from tailtrain.data.inspect import TEXT_COLUMNS
from tailtrain.data.languages import language_of
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Progress = Callable[[int, int], None]

FIELD_NAMES = (*TEXT_COLUMNS, "body", "message")
"""Names under which a text is looked for in JSON objects and in tables, best first."""

_REPLACED = "records with bad UTF-8, replaced by U+FFFD"
_LINE_BYTES = 64 << 20
_JSONL_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


@dataclass(frozen=True)
class Record:
    """One text, where it is from, and its language where that is known."""

    text: str
    source: str
    language: str | None = None


@dataclass(frozen=True)
class Options:
    """How to read.

    Attributes:
        max_record_bytes: longer texts become several records.
        field: of JSON objects, or the column of a table; found by `FIELD_NAMES` if not given.
        table: of a database; found by its columns if not given.
        skip_bad_lines: count JSON lines that are none, instead of stopping at the first.
    """

    max_record_bytes: int = 16384
    field: str | None = None
    table: str | None = None
    skip_bad_lines: bool = False


def text_records(
    inputs: Sequence[Path], options: Options, skipped: Skipped, progress: Progress
) -> Iterator[Record]:
    """Yield the text files in files and folders, also gzipped ones; binary files are counted as skipped."""
    for file in _with_progress(find(inputs, skipped), progress):
        yield from file_records(file, options, skipped, None)


def code_records(
    inputs: Sequence[Path], options: Options, skipped: Skipped, progress: Progress
) -> Iterator[Record]:
    """Yield the source files in files and folders, with their language; other files are not looked at."""
    files = find(inputs, skipped, wanted=lambda name: language_of(name) is not None)
    for file in _with_progress(files, progress):
        language = language_of(file.path.name)
        if language is None:
            skipped.add("no source file by its name", file.name)
        else:
            yield from file_records(file, options, skipped, language)


def jsonl_records(
    inputs: Sequence[Path], options: Options, skipped: Skipped, progress: Progress
) -> Iterator[Record]:
    """Yield the texts in files of JSON lines, also gzipped ones; `source` and `language` fields go along.

    Raises:
        DataError: a line is no JSON object or its text no string, with file and line number; or the first
            object does not tell which field is the text.
    """
    files = find(inputs, skipped, wanted=lambda name: name.endswith(_JSONL_ENDINGS))
    for file in _with_progress(files, progress):
        try:
            yield from _jsonl_file(file, options, skipped)
        except UNREADABLE as error:
            skipped.add(why_unreadable(error), file.name)


def sqlite_records(
    inputs: Sequence[Path], options: Options, skipped: Skipped, progress: Progress
) -> Iterator[Record]:
    """Yield one column of one table of each database, opened read-only, in the order of its rows.

    Raises:
        DataError: it is no database, or table or column are missing or cannot be told.
    """
    for file in find(inputs, skipped, wanted=lambda name: name.endswith((".db", ".sqlite", ".sqlite3"))):
        try:
            uri = f"{file.path.as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as database:
                database.text_factory = bytes
                yield from _table_records(database, file, options, skipped, progress)
        except sqlite3.Error as error:
            raise DataError("the database cannot be read", field=str(file.path), found=error) from error


def _with_progress(files: list[Found], progress: Progress) -> Iterator[Found]:
    total, done = sum(file.size for file in files), 0
    for file in files:
        yield file
        done += file.size
        progress(done, total)


def file_records(file: Found, options: Options, skipped: Skipped, language: str | None) -> Iterator[Record]:
    """Yield one file's records, code where it has a language, else prose; count what is wrong with it."""
    breaks = CODE_BREAKS if language else PROSE_BREAKS
    try:
        with open_binary(file.path) as stream:
            for piece in text_pieces(stream, options.max_record_bytes, breaks):
                text, replaced = decode(piece)
                if replaced:
                    skipped.add(_REPLACED, file.name)
                yield from _record(text, file.name, language, skipped)
    except ValueError as error:
        skipped.add(str(error), file.name)
    except UNREADABLE as error:
        skipped.add(why_unreadable(error), file.name)


def _record(text: str, source: str, language: str | None, skipped: Skipped) -> Iterator[Record]:
    text = text.strip("\n")
    if text.strip():
        yield Record(text, source, language)
    else:
        skipped.add("empty", source)


def _jsonl_file(file: Found, options: Options, skipped: Skipped) -> Iterator[Record]:
    field = options.field
    with open_binary(file.path) as stream:
        number = 0
        while line := stream.readline(_LINE_BYTES):
            number += 1
            where = f"{file.path}:{number}"
            if len(line) == _LINE_BYTES and not line.endswith(b"\n"):
                raise DataError(
                    "the line is too long", field=where, expected=f"less than {_LINE_BYTES} bytes"
                )
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                entry = _json_object(line, where)
                field = field or _text_field(entry, where)
                text = _json_text(entry, field, where)
            except DataError:
                # A field that cannot be told is a question to the person, not one bad line.
                if not options.skip_bad_lines or not field:
                    raise
                skipped.add("bad line", where)
                continue
            if text is None:
                skipped.add(f"no text in {field}", where)
                continue
            source, language = (_string(entry.get(name)) for name in ("source", "language"))
            for piece in split_text(text, options.max_record_bytes, PROSE_BREAKS):
                yield from _record(piece, source or file.name, language, skipped)


def _json_object(line: bytes, where: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            "the line is not a JSON object",
            field=where,
            found=error,
            fix="Mend it, or pass --skip-bad-lines.",
        ) from error


def _json_text(entry: dict[str, Any], field: str, where: str) -> str | None:
    value = entry.get(field)
    if value is None or isinstance(value, str):
        return value
    raise DataError(
        f"the field {field} is not a text",
        field=where,
        found=type(value).__name__,
        expected="a string",
        fix="Choose another with --field.",
    )


def _text_field(entry: dict[str, Any], where: str) -> str:
    strings = [name for name, value in entry.items() if isinstance(value, str)]
    for name in FIELD_NAMES:
        if name in strings:
            return name
    if len(strings) == 1:
        return strings[0]
    raise DataError(
        "which field is the text cannot be told",
        field=where,
        found=f"the fields {', '.join(entry) or '(none)'}",
        expected=f"one of {', '.join(FIELD_NAMES)}, or a single string",
        fix="Name it with --field.",
    )


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _table_records(
    database: sqlite3.Connection, file: Found, options: Options, skipped: Skipped, progress: Progress
) -> Iterator[Record]:
    table, column, columns = _choose(database, file, options)
    about = [name if name in columns else None for name in ("source", "language")]
    selected = ", ".join(_quoted(name) if name else "NULL" for name in [column, *about])
    # Names cannot be parameters in SQL; they are the database's own, and quoted.
    total = int(database.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0])  # noqa: S608
    rows = database.execute(f"SELECT {selected} FROM {_quoted(table)} ORDER BY {_row_order(database, table)}")  # noqa: S608
    for number, (value, source, language) in enumerate(rows, start=1):
        progress(number, total)
        name = f"{file.name}/{table}:{number}"
        if not isinstance(value, bytes) or b"\0" in value:
            skipped.add("empty" if value is None else "not text", name)
            continue
        text, replaced = decode(value.replace(b"\r\n", b"\n"))
        if replaced:
            skipped.add(_REPLACED, name)
        source_name = decode(source)[0] if isinstance(source, bytes) else f"{file.name}/{table}"
        language_name = decode(language)[0] if isinstance(language, bytes) else None
        for piece in split_text(text, options.max_record_bytes, PROSE_BREAKS):
            yield from _record(piece, source_name, language_name, skipped)


def _choose(database: sqlite3.Connection, file: Found, options: Options) -> tuple[str, str, list[str]]:
    """Give table, text column and all columns: as asked for, or the only ones that they can be."""
    names = (
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'"
    )
    tables = {
        decode(name)[0]: [
            decode(row[1])[0] for row in database.execute(f"PRAGMA table_info({_quoted(decode(name)[0])})")
        ]
        for (name,) in database.execute(f"{names} ORDER BY name").fetchall()
    }
    has = "; ".join(f"{table}({', '.join(columns)})" for table, columns in tables.items()) or "no tables"
    if options.table and options.table not in tables:
        raise DataError(f"there is no table {options.table}", field=str(file.path), found=has)
    fields = (options.field,) if options.field else FIELD_NAMES
    fitting = {
        table: next(name for name in fields if name in columns)
        for table, columns in tables.items()
        if options.table in (None, table) and any(name in columns for name in fields)
    }
    if len(fitting) != 1:
        raise DataError(
            "which table and column hold the text cannot be told",
            field=str(file.path),
            found=has,
            expected=f"one table with a column {' or '.join(fields)}",
            fix="Name them with --table and --field.",
        )
    [(table, column)] = fitting.items()
    return table, column, tables[table]


def _row_order(database: sqlite3.Connection, table: str) -> str:
    """Order by the row's number, or what is selected where there is none: in views and some tables."""
    try:
        database.execute(f"SELECT rowid FROM {_quoted(table)} LIMIT 1").fetchone()  # noqa: S608 - as above
    except sqlite3.OperationalError:
        return "1, 2, 3"
    return "rowid"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
