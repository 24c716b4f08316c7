"""Who holds the rendezvous: the one place where the nodes that are alive find each other.

torchrun's own rendezvous ends with the node that holds it. Here each node's supervisor asks again whenever its
agent ended, so the next node takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tailtrain.worker.sharded.beacon import Word, hear

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.worker.sharded.config import ShardedConfig


class RendezvousChooser(Protocol):
    """Says which node holds the rendezvous. All nodes that can see each other must come to the same answer."""

    def choose(self) -> str | None:
        """The node's name; None where no node that may hold it is alive."""


class OrderedChooser:
    """The first node of a fixed order that is alive, but for a rendezvous that is held already."""

    def __init__(self, config: ShardedConfig) -> None:
        self._config = config

    def choose(self) -> str | None:
        """See the protocol."""
        own = self._config.worker.node
        return choose_host(self._config.rendezvous_order, own, hear(self._config))


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
