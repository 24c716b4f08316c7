"""Where a node gets chunks from by HTTP: one source, its connections, and what is wrong with it.

Runs on the nodes: standard library only, besides `tailtrain.data.folder`.
"""

from __future__ import annotations

import http.client
import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from tailtrain.data.folder import Folder, Incoming, WrongBytes
from tailtrain.data.pull_connections import Connections, PatientConnection, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.data.packs import Place

REST_SECONDS = 60.0
"""How long a source is left alone after several failures in a row, instead of asked for every chunk."""

Kind = Literal["unreachable", "absent", "damaged", "refused", "limit"]
"""Why a source gave nothing: no answer; it has it not; other bytes than it should have; it does not let us;
its limit is reached."""

_BLOCK = 256 << 10
_COMPLAINT_BYTES = 16 << 10
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class SourceError(Exception):
    """A source did not give a chunk; the message says why in plain words, `kind` in one."""

    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(why)
        self.kind: Kind = kind


@dataclass(frozen=True)
class Chunk:
    """A chunk to get.

    Attributes:
        sha256: its name, in hex.
        size: in bytes.
        order: names of the sources to ask, one after the other; none twice.
        place: where the storage backend has it.
    """

    sha256: str
    size: int
    order: tuple[str, ...]
    place: Place | None = None


class Source(ABC):
    """One source; threads may share it, each request has a connection of its own.

    Attributes:
        give_up_after: how many failures in a row it takes to leave the source alone for a while.
    """

    give_up_after = 3

    def __init__(self, name: str) -> None:
        self.name = name
        self._connections = Connections(self.connection)
        self._failures = 0
        self._rests_until = 0.0
        self._last: SourceError | None = None

    @abstractmethod
    def adjacent(self, first: Chunk, second: Chunk) -> bool:
        """Whether the second chunk lies right behind the first, so that one request gets both."""

    @abstractmethod
    def connection(self) -> http.client.HTTPConnection:
        """Make a connection object; it connects when it is used."""

    @abstractmethod
    def locate(self, chunk: Chunk) -> tuple[str, int | None]:
        """Give the path to ask for, and the chunk's first byte in it; None where the chunk is all of it."""

    @abstractmethod
    def explain(self, words: str, chunk: Chunk) -> SourceError:
        """Say what an answer other than the bytes means."""

    def broken(self, words: str, chunk: Chunk) -> SourceError:  # noqa: ARG002 - for those who know more
        """Say what a connection means that was not made, or broke off."""
        return SourceError("unreachable", words)

    @property
    def given_up(self) -> SourceError | None:
        """Why the source is left alone at this moment, if it is."""
        resting = self._failures >= self.give_up_after and time.monotonic() < self._rests_until
        return self._last if resting else None

    def revive(self) -> None:
        """Ask the source again, but only once if it fails again."""
        self._failures = min(self._failures, self.give_up_after - 1)

    def read(self, run: Sequence[Chunk], folder: Folder) -> Iterator[tuple[Chunk, SourceError | None]]:
        """Get chunks that lie one behind the other into the folder, with one request.

        Yields each chunk, in order, when it is there, or with what is wrong with it. Where the request fails,
        it ends early: the chunks after the last one yielded were not asked for, as it were.

        Raises:
            Refused: the folder cannot be written.
        """
        yielded = 0
        try:
            for chunk, problem in self._read(run, folder):
                self._note(problem)
                yielded += 1
                yield chunk, problem
        except SourceError as error:
            self._note(error)
            # What is not there, or not as long as it should be, is so for all that lie in it.
            lost = run[yielded:] if error.kind in ("absent", "damaged") else run[yielded : yielded + 1]
            for chunk in lost:
                yield chunk, error

    def close(self) -> None:
        """End all connections, also those in use; requests fail from now on."""
        self._connections.close()

    def _read(self, run: Sequence[Chunk], folder: Folder) -> Iterator[tuple[Chunk, SourceError | None]]:
        path, start = self.locate(run[0])
        wanted = sum(chunk.size for chunk in run)
        headers = {} if start is None else {"Range": f"bytes={start}-{start + wanted - 1}"}
        try:
            connection, response = self._connections.get(path, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self.broken(spoken(error), run[0]) from error
        in_order = False
        try:
            left = self._length(response, start, wanted, run[0])
            missing = wanted - left
            block = memoryview(bytearray(min(_BLOCK, wanted)))
            for chunk in run:
                if chunk.size > left:
                    raise SourceError("damaged", f"what it has is {missing} bytes too short")
                with Incoming(folder, chunk.sha256, chunk.sha256, chunk.size) as file:
                    self._fill(response, file, block, chunk)
                    left -= chunk.size
                    problem = None
                    try:
                        file.keep()
                    except WrongBytes:
                        problem = SourceError("damaged", "what it gave is not what the name says")
                yield chunk, problem
            in_order = True
        finally:
            self._connections.release(connection, keep=in_order and not response.will_close)

    def _fill(
        self, response: http.client.HTTPResponse, file: Incoming, block: memoryview, chunk: Chunk
    ) -> None:
        while file.left:
            if self._connections.closed:
                raise SourceError("unreachable", "stopped")
            try:
                count = response.readinto(block[: min(file.left, len(block))])
            except (OSError, http.client.HTTPException) as error:
                raise self.broken(f"the connection broke off: {spoken(error)}", chunk) from error
            if not count:
                raise self.broken(f"the connection broke off, {file.left} bytes were still to come", chunk)
            file.write(block[:count])

    def _length(
        self, response: http.client.HTTPResponse, start: int | None, wanted: int, chunk: Chunk
    ) -> int:
        """How many of the wanted bytes are going to come; SourceError: none."""
        given = _RANGE.fullmatch(response.getheader("Content-Range") or "")
        if start is None and response.status == http.client.OK:
            if response.length != wanted:
                raise SourceError("damaged", f"what it has has {response.length} bytes instead of {wanted}")
            return wanted
        if start is not None and response.status == http.client.PARTIAL_CONTENT:
            if given and int(given[1]) == start:
                return min(wanted, int(given[2]) + 1 - start)
            raise SourceError("refused", f"it gives another part: {given and given[0]}")
        try:
            words = response.read(_COMPLAINT_BYTES).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise self.broken(f"the connection broke off: {spoken(error)}", chunk) from error
        if response.status == http.client.NOT_FOUND:
            if given is None:
                raise SourceError("absent", "it has no such file")
            # rclone knows the file, but cannot open it there.
            if int(given[1]) >= int(given[3]):
                raise SourceError("damaged", "what it has ends before this chunk begins")
        raise self.explain(f"{response.status} {response.reason}: {words}", chunk)

    def _note(self, problem: SourceError | None) -> None:
        if problem is None or problem.kind in ("absent", "damaged"):
            self._failures = 0
        else:
            self._failures += 1
            self._last = problem
            self._rests_until = time.monotonic() + REST_SECONDS


class Neighbour(Source):
    """Another node's chunk server: each chunk is a file there, named by its hash."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name)
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise ValueError(f"not an address of a chunk server: {url!r}")
        self._host, self._port = parts.hostname, parts.port

    def adjacent(self, first: Chunk, second: Chunk) -> bool:  # noqa: ARG002 - each is a file of its own
        """Never."""
        return False

    def connection(self) -> http.client.HTTPConnection:
        """One by TCP."""
        return PatientConnection(self._host, self._port)

    def locate(self, chunk: Chunk) -> tuple[str, int | None]:
        """Its name is its path."""
        return f"/{chunk.sha256}", None

    def explain(self, words: str, chunk: Chunk) -> SourceError:  # noqa: ARG002 - it says all
        """Its chunk server cannot read the file, or does not want us."""
        return SourceError("refused", f"its chunk server says {words}")
