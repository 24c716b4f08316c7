"""Where the nodes that are alive find each other: the one node that holds the rendezvous.

torchrun's own rendezvous ends with the node that holds it. Here each node's supervisor asks again whenever
its agent ended, so the next node takes over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.worker.sharded.hearing import Hearing, Word

_START_SECONDS = 5.0
_POLL_SECONDS = 0.25


class Chooser:
    """Says which node holds the rendezvous.

    The first time it waits a moment for the one that comes first, or for one that holds it already: all may
    just be starting.

    Args:
        hearing: of the other nodes.
        first: the node that holds it when all are there.
    """

    def __init__(self, hearing: Hearing, first: str) -> None:
        self._hearing, self._first, self._patience = hearing, first, _START_SECONDS

    def choose(self) -> tuple[str | None, Mapping[str, Word]]:
        """The node's name, None where no node that may hold it is alive; and what the live ones said."""
        ends, self._patience = time.monotonic() + self._patience, 0.0
        while True:
            words = self._hearing.hear()
            chosen = self._hearing.choose(words)
            held = chosen is not None and chosen in words and words[chosen].host == chosen
            over = any(word.finished for word in words.values())
            if held or over or chosen == self._first or time.monotonic() >= ends:
                return chosen, words
            time.sleep(_POLL_SECONDS)
