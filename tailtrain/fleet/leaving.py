"""Ctrl-C and the like while a deploy works.

pyinfra waits for the running operation then, and exits 0. A deploy of ours ends at once, with the exit code
that a shell expects, and says what became of each host and how to come back. Nothing on a host is left half
written by that: files are renamed into place, and a worker is its own unit. The deploy lock is free as soon
as the connection is gone.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tailtrain.fleet.results import Results

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Leaving:
    """What to say when the deploy is told to end."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._words: tuple[str, ...] = ()

    def install(self) -> None:
        """From now on: pyinfra has set a handler for Ctrl-C, and this one replaces it."""
        for number in _SIGNALS:
            signal.signal(number, self._leave)

    @contextmanager
    def saying(self, *words: str) -> Iterator[None]:
        """Lines to say if it is told to end within."""
        before, self._words = self._words, words
        try:
            yield
        finally:
            self._words = before

    def _leave(self, number: int, frame: FrameType | None) -> None:
        del frame
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        operation = self._results.operation
        self._results.show(training=bool(self._words))
        words = self._words or (
            (f"interrupted in '{operation}'; the same command goes on from there",)
            if operation
            else ("interrupted before anything was done",)
        )
        for line in words:
            click.echo(f"    {line}", err=True)
        # An exception would be caught by whoever waits in this greenlet.
        os._exit(128 + number)
