"""Saying what goes on, in plain lines that read the same on a terminal and in a file."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REMIND_SECONDS = 15.0
_WORTH_A_LINE_SECONDS = 2.0

T = TypeVar("T")


class Progress:
    """Prints lines to standard error; reminds of steps that take long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, float] = {}
        self._reminder: threading.Thread | None = None

    def say(self, line: str) -> None:
        """Print one line."""
        with self._lock:
            print(line, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, title: str, *, note: str = "") -> Iterator[None]:
        """Say that a step begins, remind of it while it lasts, and say how long it took."""
        self.say(f"{title} ..." + (f" ({note})" if note else ""))
        began = time.monotonic()
        with self._lock:
            self._open[title] = began
            if self._reminder is None:
                self._reminder = threading.Thread(target=self._remind, daemon=True)
                self._reminder.start()
        try:
            yield
        except BaseException:
            with self._lock:
                del self._open[title]
            raise
        with self._lock:
            del self._open[title]
        took = time.monotonic() - began
        if took >= _WORTH_A_LINE_SECONDS:
            self.say(f"{title}: done in {took:.0f} s")

    def _remind(self) -> None:
        while True:
            time.sleep(_REMIND_SECONDS)
            now = time.monotonic()
            with self._lock:
                still = [
                    f"{title} ({now - began:.0f} s)"
                    for title, began in self._open.items()
                    if now - began >= _REMIND_SECONDS
                ]
            if still:
                self.say("still at it: " + "; ".join(still))


def in_parallel(tasks: list[Callable[[], T]]) -> list[T]:
    """Run the tasks at once and give their results in order.

    All of them end before the first error, if any, is raised.
    """
    if not tasks:
        return []
    with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
        futures = [pool.submit(task) for task in tasks]
    return [future.result() for future in futures]
