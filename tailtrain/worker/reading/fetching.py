"""Chunks that are not here, fetched in the background while training goes on.

Any chunk may be asked for: what a lost node leaves is read by others, and a file of this node's own may be
missing or damaged. Peers that take part in the run are asked first, for each keeps copies of some chunks of
others, then the storage backend, then peers that are not there: of a node whose worker died, the chunk server
may still answer.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.data.packs import packs_of, places_of
from tailtrain.errors import DataError, WorkerError
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from tailtrain.data.pull import Puller
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.reading.batches import Wanted
    from tailtrain.worker.reading.manifests import DataSet
    from tailtrain.worker.reading.records import ChunkStore

REMOTE = "remote"
"""The storage backend among the sources of a chunk, as the puller calls it."""

_AGAIN_SECONDS = 30.0
_END_SECONDS = 2.0


def open_puller(config: WorkerConfig, data_sets: Iterable[DataSet], folder: Path) -> Puller:
    """What fetches chunks into a folder, from the peers' chunk servers and the backend."""
    # Few nodes ever lack a chunk.
    from tailtrain.data.pull import Puller  # noqa: PLC0415
    from tailtrain.data.pull_backend import RcloneRemote  # noqa: PLC0415

    storage = config.storage
    packs = [
        pack
        for data_set in data_sets
        for pack in packs_of([(chunk.sha256, chunk.size) for chunk in (*data_set.train, *data_set.heldout)])
    ]
    remote = storage.remote
    return Puller(
        folder=str(folder),
        neighbours={
            peer.node: f"http://{peer.address}:{storage.chunk_port}" for peer in config.coordination.peers
        },
        remote=RcloneRemote(remote.path, str(remote.config), remote.flags) if remote else None,
        rclone=str(storage.rclone),
        places=places_of(packs),
    )


class ChunkFetcher:
    """Fetches what is wanted, one chunk after the other, in a thread of its own.

    Args:
        config: this node's configuration.
        data_sets: those that the chunks are of.
        store: told of what has arrived.
        say: told in plain words what is being fetched, and nothing when that is all here.
    """

    def __init__(
        self,
        config: WorkerConfig,
        data_sets: Sequence[DataSet],
        store: ChunkStore,
        say: Callable[[str], None],
    ) -> None:
        self._config, self._data_sets, self._store, self._say = config, data_sets, store, say
        self._sizes = {
            chunk.sha256: chunk.size
            for data_set in data_sets
            for chunk in (*data_set.train, *data_set.heldout)
        }
        self._peers = [peer.node for peer in config.coordination.peers]
        self._present: Collection[str] = ()
        self._changed = threading.Condition()
        self._wanted: Sequence[Wanted] = ()
        self._again: dict[str, float] = {}  # chunk to the time before which it is not tried again
        self._last_source: dict[str, str] = {}  # by the node whose shard it is
        self._told: set[tuple[str, str]] = set()
        self._borrowed: set[str] = set()
        self._running = False
        self._thread: threading.Thread | None = None

    def want(self, wanted: Sequence[Wanted]) -> None:
        """From now on fetch these, the first ones first.

        Raises:
            WorkerError: there is nowhere to fetch from, and so no way to go on without the chunk.
        """
        if wanted and not self._peers and self._config.storage.remote is None:
            problem = self._store.problem(wanted[0].chunk)
            raise problem or WorkerError("a chunk is not here", field=wanted[0].chunk)
        with self._changed:
            self._wanted = tuple(wanted)
            self._go_on()

    def present(self, nodes: Collection[str]) -> None:
        """Ask these peers first: they took part in the last averaging."""
        self._present = frozenset(nodes)

    def start(self) -> None:
        """Begin to fetch. Until then wishes are kept, for a process must not fork while threads run."""
        with self._changed:
            self._running = True
            self._go_on()

    def close(self) -> None:
        """End; a chunk that is under way is waited for a moment only, and is fetched anew another time."""
        with self._changed:
            self._running, self._wanted = False, ()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_END_SECONDS)

    def give_back(self) -> None:
        """After the end of a run: remove what was fetched of others' shards, which no plan has put here.

        What a worker fetched that was killed since stays until the next deploy.
        """
        for chunk in self._borrowed:
            with suppress(OSError):  # a deploy may have removed it
                (self._config.chunk_dir / chunk).unlink()

    def _go_on(self) -> None:
        """Have a thread if there is something to do; called with the lock held."""
        if self._running and self._wanted and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fetch", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        puller: Puller | None = None
        try:
            while (one := self._next()) is not None:
                try:
                    puller = puller or open_puller(self._config, self._data_sets, self._config.chunk_dir)
                    self._fetch(puller, one)
                except (DataError, OSError) as error:
                    self._put_off(one, error)
        finally:
            with self._changed:  # whatever ended this thread, the next wish begins another
                self._thread = None
            if puller is not None:
                with suppress(DataError, OSError):
                    puller.close()

    def _next(self) -> Wanted | None:
        """The next chunk to try, when it is time; None at the end."""
        while True:
            with self._changed:
                if not self._running:
                    return None
                wanted = self._wanted
            now = time.monotonic()
            lacking = [one for one in wanted if not self._store.present(one.chunk)]
            with suppress(OSError):  # a full disk: no status can be written, but this thread must go on
                self._say(self._words(lacking))
            soonest = min(lacking, key=lambda one: self._again.get(one.chunk, 0.0), default=None)
            wait = None if soonest is None else self._again.get(soonest.chunk, 0.0) - now
            if soonest is not None and wait is not None and wait <= 0:
                return soonest
            self._wait_for_others_than(wanted, wait)

    def _wait_for_others_than(self, wanted: Sequence[Wanted], seconds: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running or self._wanted is not wanted, seconds)

    def _fetch(self, puller: Puller, one: Wanted) -> None:
        if self._store.problem(one.chunk) is None:  # a deploy has put it in place meanwhile
            self._store.arrived(one.chunk)
            return
        fetched = puller.fetch(one.chunk, self._sizes[one.chunk], self._order(one))
        self._again.pop(one.chunk, None)
        if one.node != self._config.node:
            self._borrowed.add(one.chunk)
        if (one.node, fetched.source) not in self._told:
            self._told.add((one.node, fetched.source))
            log(f"chunks of {self._whose(one.node)} shard come from {fetched.source}")
        self._last_source[one.node] = fetched.source
        self._store.arrived(one.chunk)

    def _put_off(self, one: Wanted, error: Exception) -> None:
        """Try this chunk again later; it is told once."""
        if one.chunk not in self._again:
            whose = self._whose(one.node)
            log(f"chunk {one.chunk} of {whose} shard cannot be had: {error}; trying again later")
        self._again[one.chunk] = time.monotonic() + _AGAIN_SECONDS

    def _order(self, one: Wanted) -> list[str]:
        """Whom to ask for a chunk: each chunk asks peers in an order of its own, to spread the load."""
        turn = int(one.chunk[:8], 16) % max(1, len(self._peers))
        turned = [*self._peers[turn:], *self._peers[:turn]]
        present = [node for node in turned if node in self._present]
        away = [node for node in turned if node not in self._present]
        # Nobody is known to be there before the first averaging: then those who may answer fast come first.
        backend = [REMOTE] if self._config.storage.remote is not None else []
        return [*present, *backend, *away]

    def _words(self, lacking: Sequence[Wanted]) -> str:
        """What is being fetched: '3 chunks of architect's shard from judge'."""
        counts: dict[str, int] = {}
        for one in lacking:
            counts[one.node] = counts.get(one.node, 0) + 1
        return "; ".join(
            f"fetching {count} chunk{'s' if count > 1 else ''} of {self._whose(node)} shard"
            + (f" from {source}" if (source := self._last_source.get(node)) else "")
            for node, count in counts.items()
        )

    def _whose(self, node: str) -> str:
        return "its own" if node == self._config.node else f"{node}'s"
