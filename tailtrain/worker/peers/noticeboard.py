"""What all nodes announce, in hivemind's distributed hash table.

All stand under one key, whatever run they are of and whatever version they speak: a node that is not like the
others is seen, named once, and left out. Each run has an entry of its own for each node, so that what a node
said in an earlier run does not hide what it says now.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hivemind.utils import get_dht_time

from tailtrain.errors import PeerError
from tailtrain.worker.announcements import Announcement, read_announcement
from tailtrain.worker.ledger import PROTOCOL
from tailtrain.worker.peers.origin import Origin
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from hivemind import DHT

    from tailtrain.worker.config import WorkerConfig

_KEY = "tailtrain.nodes"
_CLOCK_SECONDS = 2.0  # the clocks of a fleet are not further apart
_TABLE_SECONDS = 5.0  # one look-up or store in the table, at most


class Noticeboard:
    """Where this node says what it does, and reads what its peers say.

    Attributes:
        left_out: peers that announce something, but are not of this run as this node knows it: why.
    """

    def __init__(self, dht: DHT, config: WorkerConfig) -> None:
        self._dht, self._origin = dht, Origin.of(config)
        self._peers = frozenset(config.nodes) - {config.node}
        # Longer than any pause between two announcements of a live node, and always the same: the table keeps
        # the entry that expires last, so a node's newer word must expire after its older one.
        training = config.training
        self._lifetime = training.round_seconds + 3 * training.averaging_timeout_seconds + 60.0
        self.left_out: dict[str, str] = {}
        self._since = time.time()

    def announce(self, said: Announcement, *, wait: bool = False) -> None:
        """Tell all peers; waits until they know only where asked to."""
        stored = self._dht.store(
            _KEY,
            subkey=f"{said.node} {PROTOCOL} {self._origin.run}",
            value=self._origin.stamp(said.to_message()),
            expiration_time=get_dht_time() + self._lifetime,
            return_future=True,
        )
        if wait:
            with suppress(Exception):  # nobody may be there any more
                stored.result(timeout=_TABLE_SECONDS)

    def ask(self) -> Callable[[], dict[str, Announcement]]:
        """Start to look up all announcements; calling the result waits for them.

        This node's own is left out, as are those that are not acceptable.
        """
        future = self._dht.get(_KEY, latest=True, return_future=True)

        def answer() -> dict[str, Announcement]:
            try:
                found = future.result(timeout=_TABLE_SECONDS)
            except Exception:  # noqa: BLE001 - a look-up that fails is a look-up that found nothing
                return {}
            entries = getattr(found, "value", None)
            if not isinstance(entries, dict):
                return {}
            return self._read({subkey: entry.value for subkey, entry in entries.items()})

        return answer

    def _is_news(self, entry: Any) -> bool:
        """Whether it was said after this node came: the table keeps what nodes said in earlier runs."""
        said = entry.get("said") if isinstance(entry, dict) else None
        sent = said.get("sent") if isinstance(said, dict) else None
        return not isinstance(sent, float) or sent >= self._since - _CLOCK_SECONDS

    def _read(self, entries: dict[Any, Any]) -> dict[str, Announcement]:
        view: dict[str, Announcement] = {}
        problems: dict[str, str] = {}
        for subkey, entry in entries.items():
            name = subkey.partition(" ")[0] if isinstance(subkey, str) else ""
            if name not in self._peers:
                continue
            try:
                view[name] = read_announcement(self._origin.admit(entry, name), name)
            except PeerError as error:
                if self._is_news(entry):
                    problems[name] = str(error).removeprefix(f"{name}: ")
        problems = {name: problem for name, problem in problems.items() if name not in view}
        for name, problem in problems.items():
            if self.left_out.get(name) != problem:
                log(f"left out: {name}: {problem}")
        self.left_out = problems
        return view
