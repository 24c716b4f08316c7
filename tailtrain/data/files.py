"""Finding files in a fixed order, and reading text from them piece by piece.

What is not followed or not readable is counted, never silently left out: see `Skipped`.
"""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

BLOCK_BYTES = 1 << 20
"""How much of a file is in memory at a time."""

_SAMPLE_BYTES = 8192
# More bad UTF-8 than this in a file's beginning means that it is in another encoding, not just blemished.
_MAX_BAD_SHARE = 0.02
_EXAMPLES = 3

# Where a record may end, best first; what is matched stays in the record before. In prose: an empty line,
# a line, a word. In code: an empty line before something that is not indented, a line before such, a line.
PROSE_BREAKS = (re.compile(rb"\n[ \t]*\n+"), re.compile(rb"\n"), re.compile(rb"[ \t]"))
CODE_BREAKS = (re.compile(rb"\n\n+(?=[^\s)\]}])"), re.compile(rb"\n(?=[^\s)\]}])"), re.compile(rb"\n"))


@dataclass
class Skipped:
    """What was left out and why: counts, and the first few names of each kind.

    Attributes:
        counts: how often, by reason in plain words.
        examples: some of what it was, by reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, what: object) -> None:
        """Count one."""
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(_readable(str(what)))


@dataclass(frozen=True)
class Found:
    """A file to read: where it is, what records call it, and its size in bytes."""

    path: Path
    name: str
    size: int


def find(
    inputs: Sequence[Path],
    skipped: Skipped,
    *,
    wanted: Callable[[str], bool] | None = None,
    not_in: Collection[str] = (),
) -> list[Found]:
    """List files and what is in folders, sorted, each once.

    Symbolic links inside folders are not followed: what they mean is read in its own place or was not asked
    for, and no loop can arise. Hidden files and folders (`.git`) are left out.

    Args:
        inputs: files and folders; these may be symbolic links.
        skipped: counts what is left out.
        wanted: says by a file's name whether to take it from a folder; others are not even counted.
        not_in: names of folders inside folders that are not looked into, nor counted.

    Raises:
        DataError: an input does not exist.
    """
    found: dict[Path, Found] = {}
    for given in sorted(set(inputs)):
        try:
            status = given.stat()
        except OSError as error:
            raise DataError("the input cannot be read", field=str(given), found=error.strerror) from error
        if stat.S_ISDIR(status.st_mode):
            top = given.resolve()
            for relative, size in _walk(str(top), skipped, wanted, not_in):
                path = top / relative
                found.setdefault(path, Found(path, _readable(f"{top.name}/{relative}"), size))
        elif stat.S_ISREG(status.st_mode):
            found.setdefault(given.resolve(), Found(given.resolve(), _readable(given.name), status.st_size))
        else:
            skipped.add("not a regular file", given)
    return list(found.values())


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, decompressing it if it is gzip; errors while reading are `UNREADABLE`."""
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.GzipFile(path, "rb"))
    return path.open("rb")


UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading a file from `open_binary` may raise; gzip.BadGzipFile is an OSError."""


def why_unreadable(error: BaseException) -> str:
    """Say it in the words that `Skipped` counts by."""
    if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
        return "damaged gzip"
    return "cannot be read"


def text_pieces(stream: BinaryIO, limit: int, breaks: Sequence[re.Pattern[bytes]]) -> Iterator[bytes]:
    """Yield a text in pieces of at most `limit` bytes, cut where `breaks` allow, or else between characters.

    Carriage returns before newlines and a byte order mark go. Memory is one block and one piece.

    Raises:
        ValueError: it is not text; says why in the words that `Skipped` counts by.
    """
    buffer, position = b"", 0
    for index, block in enumerate(_blocks(stream)):
        if index == 0:
            _check_text(block)
            block = block.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901 - the same block, without its mark
        if b"\0" in block:
            raise ValueError("binary")
        buffer, position = buffer[position:] + block, 0
        while len(buffer) - position > limit:
            end = _end_of_piece(buffer, position, position + limit, breaks)
            yield buffer[position:end]
            position = end
    if position < len(buffer):
        yield buffer[position:]


def split_text(text: str, limit: int, breaks: Sequence[re.Pattern[bytes]]) -> Iterator[str]:
    """Split a text that is in memory already, as `text_pieces` does."""
    raw = text.encode()
    position = 0
    while len(raw) - position > limit:
        end = _end_of_piece(raw, position, position + limit, breaks)
        yield raw[position:end].decode()
        position = end
    yield raw[position:].decode()


def decode(raw: bytes) -> tuple[str, bool]:
    """Decode UTF-8; where it is bad, U+FFFD stands instead, and the second value says so."""
    try:
        return raw.decode(), False
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), True


def _readable(name: str) -> str:
    """Give a file's name as valid text: on Linux a name may be any bytes."""
    return os.fsencode(name).decode(errors="replace")


def _walk(
    top: str, skipped: Skipped, wanted: Callable[[str], bool] | None, not_in: Collection[str]
) -> Iterator[tuple[str, int]]:
    """Yield regular files below a folder, in the order of their names: their paths from there, and sizes."""
    pending = [""]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(f"{top}/{current}") as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            skipped.add("cannot be read", f"{top}/{current}")
            continue
        folders: list[str] = []
        for entry in entries:
            path = f"{current}{entry.name}"
            if entry.name.startswith("."):
                skipped.add("hidden", path)
            elif entry.is_symlink():
                skipped.add("symbolic link", path)
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in not_in:
                    folders.append(f"{path}/")
            elif wanted and not wanted(entry.name):
                continue
            elif not entry.is_file(follow_symlinks=False):
                skipped.add("not a regular file", path)
            else:
                yield path, entry.stat(follow_symlinks=False).st_size
        pending += reversed(folders)


def _blocks(stream: BinaryIO) -> Iterable[bytes]:
    while block := stream.read(BLOCK_BYTES):
        # A carriage return and its newline stay together, so that both can be seen.
        while block.endswith(b"\r") and (more := stream.read(1)):
            block += more
        yield block.replace(b"\r\n", b"\n")


def _check_text(block: bytes) -> None:
    sample = block[:_SAMPLE_BYTES]
    if b"\0" in sample:
        raise ValueError("binary")
    bad = sample.decode(errors="replace").count("\ufffd") - sample.count(b"\xef\xbf\xbd")
    # A character that the sample's end cuts in two is one more, and no fault.
    if bad - 1 > _MAX_BAD_SHARE * len(sample):
        raise ValueError("not UTF-8 text")


def _end_of_piece(buffer: bytes, start: int, limit: int, breaks: Sequence[re.Pattern[bytes]]) -> int:
    for pattern in breaks:
        end = max((match.end() for match in pattern.finditer(buffer, start, limit)), default=start)
        if end > start:
            return end
    end = limit
    # UTF-8 continuation bytes are 10xxxxxx: step back to where a character begins.
    while end > start and buffer[end] & 0xC0 == 0x80 and limit - end < 4:  # noqa: PLR2004 - a character's length
        end -= 1
    return end if end > start else limit
