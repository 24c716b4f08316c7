"""Words, numbers and tables for terminals: 80 columns, plain text, nothing cut off."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 80


def table(rows: Sequence[Sequence[object]], *, right: Sequence[int] = (), indent: int = 2) -> list[str]:
    """Rows as aligned lines; the columns in `right` are set flush right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((" " * indent + "  ".join(parts)).rstrip())
    return lines


def tables(rows: Sequence[Sequence[object]], *, right: Sequence[int] = (), indent: int = 2) -> list[str]:
    """As `table`; one that is wider than 80 columns goes on below, each part with the first column."""
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    parts: list[list[int]] = [[0]]
    for column, width in enumerate(widths[1:], 1):
        used = indent + sum(widths[each] + 2 for each in parts[-1])
        if used + width > WIDTH and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(column)
    lines: list[str] = []
    for columns in parts:
        part = [[row[column] for column in columns] for row in rows]
        flush = [place for place, column in enumerate(columns) if column in right]
        lines += [*([""] if lines else []), *table(part, right=flush, indent=indent)]
    return lines


def wrapped(text: str, *, indent: int = 0, hanging: int | None = None, first: str | None = None) -> list[str]:
    """A sentence or a list in lines of at most 80 columns; a longer word stays whole.

    Args:
        text: what is said; line feeds in it stay.
        indent: columns before each line.
        hanging: columns before the lines after the first of each paragraph, `indent` + 2 if not given.
        first: what stands before the first line instead of the indent.
    """
    lines: list[str] = []
    hang = " " * (indent + 2 if hanging is None else hanging)
    for paragraph in text.split("\n"):
        start = first if first is not None and not lines else " " * indent
        lines += textwrap.wrap(
            printable(paragraph),
            WIDTH,
            initial_indent=start,
            subsequent_indent=hang,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [start.rstrip()]
    return lines


def columns(rows: Sequence[tuple[str, str]], *, indent: int = 2) -> list[str]:
    """Pairs, the second ones aligned and wrapped; a first one that is the same again is not repeated."""
    widest = max((len(printable(first)) for first, _ in rows), default=0)
    lines: list[str] = []
    before = None
    for first, second in rows:
        label = "" if first == before else printable(first)
        start = f"{'':{indent}}{label:{widest}}  "
        lines += wrapped(second, indent=len(start), hanging=len(start), first=start)
        before = first
    return lines


def printable(line: str) -> str:
    """A line without anything that a terminal would obey: some of it comes from hosts."""
    if line.isprintable():
        return line
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in line
    )


def listed(head: str, items: Sequence[str], *, indent: int = 0) -> list[str]:
    """A few words and the list that follows them, as `wrapped`; no line ends within an item."""
    lines = wrapped(head, indent=indent)
    for number, item in enumerate(items, 1):
        piece = printable(item) + ("," if number < len(items) else "")
        if len(lines[-1]) + 1 + len(piece) <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"{' ' * (indent + 2)}{piece}")
    return lines


def duration(seconds: float) -> str:
    """Seconds in words, no finer than they are known: `under 1 s`, `about 40 s`, `about 12 min`."""
    if seconds < 1:
        return "under 1 s"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds:.0f} s"


def share(raw: int) -> str:
    """A share in 65536ths as per cent."""
    return f"{raw / 655.36:.2f} %"
