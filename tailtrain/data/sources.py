"""Records from files: texts, source trees and JSON lines (databases: see `tailtrain.data.database`).

Each source yields records in a fixed order, holds little of it in memory, and counts what it leaves out. Long
texts become several records, cut at paragraphs, or in code at top-level statements.
"""

from __future__ import annotations

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

REPLACED = "records with bad UTF-8, replaced by U+FFFD"
"""How such records are counted."""

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
                    skipped.add(REPLACED, file.name)
                yield from one_record(text, file.name, language, skipped)
    except ValueError as error:
        skipped.add(str(error), file.name)
    except UNREADABLE as error:
        skipped.add(why_unreadable(error), file.name)


def one_record(text: str, source: str, language: str | None, skipped: Skipped) -> Iterator[Record]:
    """Yield a record of this text without the newlines around it, or count it where nothing is left."""
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
                yield from one_record(piece, source or file.name, language, skipped)


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
