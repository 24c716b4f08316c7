"""What a node has trained since it averaged last.

Mostly that is one round's work. Where a partner did not come, or there was none, it is brought to the next
averaging together with what is trained until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.worker.ledger import Contribution
from tailtrain.worker.reading.reading_progress import join
from tailtrain.worker.trainer import NO_WORK, Work

if TYPE_CHECKING:
    from tailtrain.worker.node_state import NodeState


def together(earlier: Work, later: Work) -> Work:
    """Two pieces of work as one; its loss is the mean by tokens."""
    known = [(work.loss, work.tokens) for work in (earlier, later) if work.loss is not None]
    tokens = sum(count for _, count in known)
    return Work(
        tokens=earlier.tokens + later.tokens,
        records={
            node: earlier.records.get(node, 0) + later.records.get(node, 0)
            for node in {**earlier.records, **later.records}
        },
        loss=sum(loss * count for loss, count in known) / tokens if tokens else None,
        train_seconds=earlier.train_seconds + later.train_seconds,
        cpu_seconds=earlier.cpu_seconds + later.cpu_seconds,
    )


class Uncommitted:
    """The work, and how it is brought to an averaging.

    Args:
        node: this node.
        state: what it has committed.

    Attributes:
        work: since the last commit.
    """

    def __init__(self, node: str, state: NodeState) -> None:
        self._node, self._state = node, state
        self.work = NO_WORK

    def add(self, work: Work) -> None:
        """One more piece was trained."""
        self.work = together(self.work, work)

    def clear(self) -> None:
        """It was committed, or dropped."""
        self.work = NO_WORK

    def contribution(self, number: int, arrived: float) -> Contribution:
        """What this node brings to the averaging of a round.

        Args:
            number: the round.
            arrived: when this node was ready (unix seconds, the run's clock).
        """
        commit, work, state = self._state.commit, self.work, self._state
        return Contribution(
            node=self._node,
            round=number,
            before=commit.own,
            tokens=work.tokens,
            records=sum(work.records.values()),
            loss=work.loss,
            train_seconds=work.train_seconds,
            cpu_seconds=work.cpu_seconds,
            averaging_seconds=commit.averaging_seconds,
            arrived=arrived,
            base=state.anchor.digest,
            ledger=commit.ledger,
            taken_over={node: count for node, count in work.records.items() if node != self._node},
            progress=join((commit.progress, state.trainer.stream.progress()), state.supply.shards),
        )
