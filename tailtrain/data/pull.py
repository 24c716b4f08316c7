"""Getting chunks of a data set onto a node by their hash, from other nodes and from the storage backend.

Runs on the nodes, in the worker's environment. As a program (`python -m tailtrain.data.pull`) it reads one
line of JSON from standard input and answers with one on standard output:

    {"folder": "/var/lib/tailtrain/chunks", "mode": "0640", "reserve_bytes": 1000000000, "parallel": 4,
     "neighbours": {"architect": "http://100.64.0.3:45002"},
     "rclone": "/opt/tailtrain/env/1/bin/rclone",
     "remote": {"path": "fleet:bucket/folder", "config": "/etc/tailtrain/storage.conf", "flags": []},
     "chunks": [{"sha256": "...", "size": 123, "from": ["architect", "remote"], "pack": ["...", 0]}]}

    {"ok": true, "received": 1, "skipped": 0, "bytes": 123, "seconds": 0.1, "error": null,
     "sources": {"architect": {"chunks": 1, "bytes": 123}, "remote": {"chunks": 0, "bytes": 0}},
     "instead": {"architect": {"remote": 1}},
     "failed": [{"sha256": "...", "source": "architect", "kind": "unreachable", "why": "..."}],
     "passed_over": [{"source": "architect", "kind": "damaged", "chunks": 1, "sha256": ["..."],
                      "why": "..."}]}

`rclone`, `remote` and `pack` may be null. `instead` counts the chunks that came from another source than the
first in their order: by that one, and by where they came from. `failed` has the last word of each source on
chunks that none gave (the source is "none" where there was nobody to ask), `passed_over` what was wrong with
sources whose chunks came from others; `kind` is one of those in `tailtrain.data.pull_source`. `error` says
what is wrong with the folder or the request. The exit code is 0 if all chunks are there now, else 1.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tailtrain.data.folder import Folder, Refused, plain
from tailtrain.data.packs import Place
from tailtrain.data.pull_answer import Pulled
from tailtrain.data.pull_backend import Backend, RcloneRemote
from tailtrain.data.pull_batch import Batch
from tailtrain.data.pull_source import Chunk, Neighbour, Source, SourceError
from tailtrain.data.verify import examine
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import FrameType

REMOTE = "remote"
"""The storage backend's name among the sources."""

HERE = "here"
"""The source of a chunk that was there already."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SETTLE_SECONDS = 30.0
_RETRY_SECONDS = 2.0


@dataclass(frozen=True)
class Fetched:
    """Where a chunk came from, how many bytes came, and how long it took."""

    source: str
    bytes: int
    seconds: float


class Puller:
    """Gets chunks into one folder; threads may share it. To be closed when it is not needed any more.

    Args:
        folder: where chunks are files named by their hash; must exist.
        neighbours: URLs of other nodes' chunk servers, by name.
        remote: where the storage backend has packs, if there is one.
        rclone: the program; needed where there is a remote.
        places: where each chunk lies on the backend; only for `fetch`.
        mode: of the files, octal.
        reserve_bytes: how much of the disk must stay free.

    Raises:
        DataError: the folder cannot be written, or an address is none.
    """

    def __init__(
        self,
        folder: str,
        neighbours: Mapping[str, str],
        remote: RcloneRemote | None,
        rclone: str | None,
        places: Mapping[str, Place],
        *,
        mode: str = "0640",
        reserve_bytes: int = 0,
    ) -> None:
        self._places = places
        self._fetching: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._settled_at = time.monotonic()
        try:
            self._sources: dict[str, Source] = {
                name: Neighbour(name, url) for name, url in neighbours.items()
            }
            if remote and rclone:
                self._sources[REMOTE] = Backend(REMOTE, remote, rclone)
            self._folder = Folder(folder, mode=mode, reserve_bytes=reserve_bytes)
            self._folder.sweep()
        except ValueError as error:
            raise DataError(str(error)) from error
        except Refused as error:
            raise _no_folder(folder, error) from error

    def fetch(self, sha256: str, size: int, order: Sequence[str]) -> Fetched:
        """Get one chunk, from the first of these sources that gives it.

        Sources that failed several times in a row within the last minute are passed over.

        Raises:
            DataError: none of the sources gave it; the message has each one's reason. Or the folder cannot be
                written.
        """
        started = time.monotonic()
        chunk = Chunk(sha256, size, tuple(dict.fromkeys(order)), self._places.get(sha256))
        problems = []
        try:
            with self._fetching[sha256]:
                if not self._missing([chunk]):
                    return Fetched(HERE, 0, time.monotonic() - started)
                self._folder.check_space(size, 1)
                for name in chunk.order:
                    problem = self._ask(name, chunk)
                    if problem is None:
                        self._settle_at_times()
                        return Fetched(name, size, time.monotonic() - started)
                    problems.append(f"{name}: {problem}")
        except Refused as error:
            raise _no_folder(self._folder.path, error) from error
        raise DataError("no source gave this chunk", field=sha256, found="; ".join(problems) or "no source")

    def pull(self, chunks: Iterable[Chunk], parallel: int) -> Pulled:
        """Get all of these chunks, as far as there are sources that give them.

        What no source gave is asked for a second time, at the end, where that may help. Where the folder
        cannot be written, what is given back says so.

        Args:
            chunks: what should be there then.
            parallel: how many requests each source serves at a time.
        """
        asked = {chunk.sha256: chunk for chunk in chunks}
        batch = Batch(self._sources, self._folder, parallel, self._settle_at_times)
        pulled = Pulled(len(asked), {}, batch.came, batch.problems)
        try:
            missing = self._missing(list(asked.values()))
            pulled.wanted = {chunk.sha256: chunk for chunk in missing}
            self._folder.check_space(sum(chunk.size for chunk in missing), len(missing))
            batch.run(missing)
            if again := pulled.worth_a_retry():
                time.sleep(_RETRY_SECONDS)
                for source in self._sources.values():
                    source.revive()
                batch.run(again)
        except Refused as error:
            pulled.error = f"{error.file}: {error}" if error.file else str(error)
            for source in self._sources.values():
                source.close()
            batch.join()
        finally:
            self._folder.settle()
        return pulled

    def close(self) -> None:
        """End all connections and rclone."""
        for source in self._sources.values():
            source.close()
        self._folder.settle()
        self._folder.close()

    def _ask(self, name: str, chunk: Chunk) -> SourceError | None:
        source = self._sources.get(name)
        if source is None:
            return SourceError("absent", "this node knows no such source")
        if given_up := source.given_up:
            return given_up
        [(_, problem)] = source.read([chunk], self._folder)
        return problem

    def _missing(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        try:
            found = examine(self._folder.path, {chunk.sha256: chunk.size for chunk in chunks})
        except OSError as error:
            raise Refused(f"{self._folder.path}: {plain(error)}") from error
        absent = {*found["missing"], *found["damaged"]}
        return [chunk for chunk in chunks if chunk.sha256 in absent]

    def _settle_at_times(self) -> None:
        if time.monotonic() - self._settled_at > _SETTLE_SECONDS:
            self._settled_at = time.monotonic()
            self._folder.settle()


def main() -> int:
    """Answer the request on standard input; the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stopped)
    started = time.monotonic()
    pulled = Pulled(0, {})
    try:
        try:
            request = json.loads(sys.stdin.readline())
            chunks = [_chunk(each) for each in request["chunks"]]
            puller = _puller(request)
            parallel = int(request["parallel"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"the request is not understood: {error!r}") from error
        with closing(puller):
            pulled = puller.pull(chunks, parallel)
    except (DataError, Refused) as error:
        pulled.error = pulled.error or str(error)
    print(json.dumps(pulled.answer(time.monotonic() - started)), flush=True)
    return 0 if pulled.ok else 1


def _puller(request: dict[str, Any]) -> Puller:
    remote = request["remote"]
    return Puller(
        str(request["folder"]),
        {str(name): str(url) for name, url in request["neighbours"].items()},
        RcloneRemote(str(remote["path"]), str(remote["config"]), tuple(map(str, remote["flags"])))
        if remote
        else None,
        request["rclone"] and str(request["rclone"]),
        {},
        mode=str(request["mode"]),
        reserve_bytes=int(request["reserve_bytes"]),
    )


def _chunk(entry: dict[str, Any]) -> Chunk:
    sha256, size, pack = str(entry["sha256"]), int(entry["size"]), entry["pack"]
    if not _SHA256.fullmatch(sha256) or size <= 0:
        raise ValueError(f"no chunk: {sha256} of {size} bytes")
    place = Place(str(pack[0]), int(pack[1])) if pack else None
    return Chunk(sha256, size, tuple(dict.fromkeys(map(str, entry["from"]))), place)


def _no_folder(path: str, error: Refused) -> DataError:
    return DataError("chunks cannot be written", field=path, found=str(error))


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise Refused(f"stopped by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
