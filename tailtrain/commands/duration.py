"""Spans of time as people type them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from datetime import timedelta

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_FORM = re.compile(rf"(\d{{1,9}})\s*({'|'.join(_SECONDS)})")


class Duration(click.ParamType[int]):
    """A number with its unit, as seconds.

    Args:
        least: the shortest that is taken.
        most: the longest that is taken.
    """

    name = "duration"

    def __init__(self, *, least: timedelta, most: timedelta) -> None:
        self._least, self._most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The seconds; a usage error where it is none, or out of bounds."""
        if isinstance(value, int):
            return value
        match = _FORM.fullmatch(str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is no span of time such as 30m, 1h or 2d", param, ctx)
        seconds = int(match[1]) * _SECONDS[match[2]]
        if not self._least.total_seconds() <= seconds <= self._most.total_seconds():
            self.fail(f"{value} is not from {spoken(self._least)} to {spoken(self._most)}", param, ctx)
        return seconds


def spoken(span: timedelta) -> str:
    """A span in the largest unit that gives a whole number: `1 hour`, `90 minutes`, `7 days`."""
    seconds = int(span.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if seconds >= size and seconds % size == 0:
            count = seconds // size
            return f"{count} {unit}" + ("s" if count != 1 else "")
    return "0 seconds"
