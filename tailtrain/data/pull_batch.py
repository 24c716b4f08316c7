"""Getting many chunks at once: several requests to each source, what fails goes to the chunk's next source.

Runs on the nodes: standard library only.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from tailtrain.data.pull_source import Chunk, Source, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tailtrain.data.folder import Folder

_LEAST_RANGE_BYTES, _MOST_RANGE_BYTES = 4 << 20, 32 << 20


class Batch:
    """Gets chunks into a folder.

    Args:
        sources: by name.
        folder: where they go.
        parallel: how many requests each source serves at a time.
        arrived: called after each chunk that arrived, from any thread.

    Attributes:
        came: from which source each chunk came that is there now, by its hash.
        problems: by the hash of each chunk that a source did not give, what was wrong with that source.
    """

    def __init__(
        self, sources: Mapping[str, Source], folder: Folder, parallel: int, arrived: Callable[[], None]
    ) -> None:
        self.came: dict[str, str] = {}
        self.problems: dict[str, dict[str, SourceError]] = {}
        self._sources = sources
        self._folder = folder
        self._parallel = parallel
        self._arrived = arrived
        self._changed = threading.Condition()
        self._pending = 0
        self._lines: dict[str, _Line] = {}
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None

    def run(self, chunks: Iterable[Chunk]) -> None:
        """Get these chunks, as far as there are sources that give them.

        Raises:
            Refused: the folder cannot be written.
        """
        try:
            with self._changed:
                for chunk in chunks:
                    self._pending += 1
                    self._pass_on(chunk, chunk.order)
                self._changed.wait_for(lambda: not self._pending or self._error)
        except BaseException as error:
            # Whatever interrupted the wait, the threads start nothing new.
            self._error = error
            raise
        if self._error:
            raise self._error

    def join(self) -> None:
        """After an error, and when the sources are closed: wait until no thread is at work any more."""
        for thread in self._threads:
            thread.join()

    def _pass_on(self, chunk: Chunk, names: tuple[str, ...]) -> None:
        """Queue a chunk at the first of these sources that exists. Needs the lock."""
        if self._error:
            return
        for name in names:
            if name in self._sources:
                line = self._lines.setdefault(name, _Line())
                line.add(chunk)
                if line.threads < self._parallel:
                    line.threads += 1
                    thread = threading.Thread(target=self._work, args=[name, line], daemon=True)
                    self._threads.append(thread)
                    thread.start()
                return
            self._problem(chunk, name, SourceError("absent", "this node knows no such source"))
        if not chunk.order:
            self._problem(chunk, "none", SourceError("absent", "there is no source to ask"))
        self._pending -= 1
        self._changed.notify_all()

    def _work(self, name: str, line: _Line) -> None:
        source = self._sources[name]
        try:
            while run := self._take(source, line):
                rest = run
                while rest and not self._error:
                    rest = rest[self._read(source, rest) :]
        except BaseException as error:  # noqa: BLE001 - raised again where `run` waits
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _take(self, source: Source, line: _Line) -> list[Chunk]:
        with self._changed:
            run = [] if self._error else line.take(source, self._parallel)
            if not run:
                line.threads -= 1
            return run

    def _read(self, source: Source, run: list[Chunk]) -> int:
        """Get some of these chunks, in order, or pass them on; give how many."""
        if given_up := source.given_up:
            for chunk in run:
                self._failed(chunk, source.name, given_up)
            return len(run)
        count = 0
        for chunk, problem in source.read(run, self._folder):
            count += 1
            if problem:
                self._failed(chunk, source.name, problem)
                continue
            self._arrived()
            with self._changed:
                self.came[chunk.sha256] = source.name
                self._pending -= 1
                self._changed.notify_all()
        return count

    def _failed(self, chunk: Chunk, name: str, problem: SourceError) -> None:
        with self._changed:
            self._problem(chunk, name, problem)
            self._pass_on(chunk, chunk.order[chunk.order.index(name) + 1 :])

    def _problem(self, chunk: Chunk, name: str, problem: SourceError) -> None:
        self.problems.setdefault(chunk.sha256, {})[name] = problem


class _Line:
    """Chunks that wait for one source, and how many threads serve it."""

    def __init__(self) -> None:
        self.threads = 0
        self._waiting: deque[Chunk] = deque()
        self._bytes = 0

    def add(self, chunk: Chunk) -> None:
        self._waiting.append(chunk)
        self._bytes += chunk.size

    def take(self, source: Source, parallel: int) -> list[Chunk]:
        """Take the next chunk and those that one request gets as well, yet leave some for each thread."""
        most = min(max(self._bytes // (2 * parallel), _LEAST_RANGE_BYTES), _MOST_RANGE_BYTES)
        run: list[Chunk] = []
        total = 0
        while self._waiting:
            chunk = self._waiting[0]
            if run and (total + chunk.size > most or not source.adjacent(run[-1], chunk)):
                break
            total += chunk.size
            run.append(self._waiting.popleft())
        self._bytes -= total
        return run
