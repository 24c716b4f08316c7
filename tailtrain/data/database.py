"""Records from SQLite databases: one column of one table, opened read-only."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tailtrain.data.files import PROSE_BREAKS, Found, Skipped, decode, find, split_text
from tailtrain.data.sources import FIELD_NAMES, REPLACED, Options, Record, one_record
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Progress = Callable[[int, int], None]


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
            skipped.add(REPLACED, name)
        source_name = decode(source)[0] if isinstance(source, bytes) else f"{file.name}/{table}"
        language_name = decode(language)[0] if isinstance(language, bytes) else None
        for piece in split_text(text, options.max_record_bytes, PROSE_BREAKS):
            yield from one_record(piece, source_name, language_name, skipped)


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
