"""What the supervisors of a run's nodes know of each other: who is there, and where the rendezvous is.

Over a port of their own (`beacon`) where the run is centralized, through Serf (`gossip`) under eneGossip.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tailtrain.worker.files import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.worker.sharded.config import ShardedConfig


@dataclass(frozen=True)
class Word:
    """What a live supervisor says of itself.

    Attributes:
        run_id: the run that it works on.
        node: its name.
        host: the node that it takes the rendezvous to be on; None where it meets nobody now.
        finished: whether the run is finished for it.
    """

    run_id: str
    node: str
    host: str | None = None
    finished: bool = False

    def encoded(self) -> bytes:
        """As it is sent: one line."""
        return canonical_json(asdict(self))


class Hearing(Protocol):
    """Tells the others of this node, and hears of them."""

    def tell(self, host: str | None, *, finished: bool = False) -> None:
        """Say from now on where this node takes the rendezvous to be."""

    def hear(self) -> Mapping[str, Word]:
        """The other nodes whose supervisors live, by name, and what they say."""

    def choose(self, words: Mapping[str, Word]) -> str | None:
        """Which node holds the rendezvous; None where no node that may hold it is there.

        All nodes that hear each other come to the same answer.
        """

    def why(self) -> str:
        """In plain words, why nobody may hold the rendezvous."""

    @property
    def dead(self) -> frozenset[str]:
        """Nodes that are known to be dead: nobody needs to wait for a word of theirs."""

    def show(self, round_number: int, tokens_per_second: float) -> None:
        """How far this node is."""

    def close(self) -> None:
        """Say nothing any more."""


def choose_host(order: Sequence[str], own: str, words: Mapping[str, Word]) -> str | None:
    """The node to hold the rendezvous, from what the live nodes said.

    A node that came back joins the one that took its place. A rendezvous counts as held where the node itself
    says so; of two, which a parted network can leave behind, the one first in order stays.

    Args:
        order: who may hold it, best first.
        own: this node, which is alive; what it thought before does not count, for it asks because that ended.
        words: what the other live nodes said.
    """
    held = held_by(order, words)
    return held or next((node for node in order if node == own or _may_hold(words.get(node))), None)


def held_by(order: Sequence[str], words: Mapping[str, Word]) -> str | None:
    """The first node that says that it holds the rendezvous itself; None where none does."""
    live = (words[node] for node in order if _may_hold(words.get(node)))
    return next((word.node for word in live if word.host == word.node), None)


def _may_hold(word: Word | None) -> bool:
    return word is not None and not word.finished


def read_word(content: bytes, node: str, config: ShardedConfig) -> Word | None:
    """What a node said; None where it is no word of this run's, or not that node's."""
    try:
        word: Any = json.loads(content)
    except ValueError:
        return None
    known = {other.node for other in config.nodes}
    run_id = config.worker.run_id
    match word:
        case {"run_id": str(run), "node": str(name), "host": host, "finished": bool(finished)}:
            if (run, name) == (run_id, node):
                return Word(run_id, name, host if host in known else None, finished)
    return None
