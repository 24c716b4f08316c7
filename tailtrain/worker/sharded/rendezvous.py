"""Who holds the rendezvous: the one place where the nodes that are alive find each other.

torchrun's own rendezvous ends with the node that holds it. Here each node's supervisor asks again whenever
its agent ended, so the next node takes over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from tailtrain.worker.sharded.beacon import Word, hear

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.worker.sharded.config import ShardedConfig

_START_SECONDS = 5.0
_POLL_SECONDS = 0.25


class RendezvousChooser(Protocol):
    """Says which node holds the rendezvous; all nodes that can see each other come to the same answer."""

    def choose(self) -> str | None:
        """The node's name; None where no node that may hold it is alive."""


class OrderedChooser:
    """The first node of a fixed order that is alive, but for a rendezvous that is held already.

    The first time it waits a moment for nodes that come before this one: all may just be starting.
    """

    def __init__(self, config: ShardedConfig) -> None:
        self._config, self._patience = config, _START_SECONDS

    def choose(self) -> str | None:
        """See the protocol."""
        order, own = self._config.rendezvous_order, self._config.worker.node
        ends, self._patience = time.monotonic() + self._patience, 0.0
        while True:
            words = hear(self._config)
            chosen = choose_host(order, own, words)
            held = chosen is not None and chosen in words and words[chosen].host == chosen
            if held or chosen == order[0] or time.monotonic() >= ends:
                return chosen
            time.sleep(_POLL_SECONDS)


def choose_host(order: Sequence[str], own: str, words: Mapping[str, Word]) -> str | None:
    """The node to hold the rendezvous, from what the live nodes said.

    A node that came back joins the one that took its place. A rendezvous counts as held where the node itself
    says so; of two, which a parted network can leave behind, the one first in order stays.

    Args:
        order: who may hold it, best first.
        own: this node, which is alive; what it thought before does not count, for it asks because that ended.
        words: what the other live nodes said.
    """
    held = [node for node in order if node in words and words[node].host == node]
    if held:
        return held[0]
    return next((node for node in order if node == own or node in words), None)
