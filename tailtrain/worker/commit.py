"""The state that an averaging leaves on a node, without what only the trainer and the disk hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.worker.ledger import PROTOCOL, Entry, Ledger, ledger_to_json, total_tokens
from tailtrain.worker.reading.reading_progress import Progress, progress_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tailtrain.worker.exchange import SharedState
    from tailtrain.worker.reading.shards import Shards


@dataclass(frozen=True)
class Commit:
    """A committed state.

    Attributes:
        round: the last committed round, -1 before the first.
        weights: on the host; never changed in place, peers may be downloading it.
        outer: the outer momentum, of no elements where the run has no outer step.
        digest: SHA-256 of the weights.
        own: this node's committed work.
        ledger: the fleet's.
        progress: how far all shards have been read for these weights.
        group: tokens per second of each member of the last averaging of all; of none before the first.
        averaging_seconds: how long the last averaging of all took here.
        finished: whether the target was reached.
    """

    round: int
    weights: Tensor
    outer: Tensor
    digest: str
    own: Entry
    ledger: Ledger
    progress: Progress
    group: Mapping[str, float]
    averaging_seconds: float
    finished: bool

    @property
    def total_tokens(self) -> int:
        """What the fleet has committed."""
        return total_tokens(self.ledger)

    def to_status(self) -> dict[str, Any]:
        """As status.json shows it."""
        return {
            "tokens": self.own.tokens,
            "records": self.own.records,
            "total_tokens": self.total_tokens,
            "weights_sha256": self.digest,
        }

    def to_shared(self, shards: Shards) -> SharedState:
        """As peers download it."""
        metadata = {
            "protocol": PROTOCOL,
            "round": self.round,
            "finished": self.finished,
            "ledger": ledger_to_json(self.ledger),
            "progress": progress_to_json(self.progress, shards),
            "group": dict(self.group),
        }
        return metadata, [self.weights, self.outer]
