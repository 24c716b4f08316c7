"""Serf's membership for a divided model: who lives, who holds the rendezvous, whom nobody waits for.

A node counts as there if its agent is alive for this node's agent and its supervisor answers a question that
Serf carries: an agent lives on when the worker beside it dies. Two observers that hold a node failed end
every wait for it, long before torch's own time-outs would.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailtrain.worker.gossip.health import Vitals, health_of
from tailtrain.worker.gossip.members import Tags
from tailtrain.worker.gossip.roster import rendezvous_host, roster
from tailtrain.worker.gossip.vitals import checkpoints_that_fit, memory_free
from tailtrain.worker.gossip.watch import Watch, read_rpc
from tailtrain.worker.sharded.beacon import Beacon
from tailtrain.worker.sharded.hearing import Word, held_by, read_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.sharded.hearing import Hearing

_ANSWER_SECONDS = 1.5


class GossipHearing:
    """Hears of the others through the local Serf agent; one that is away hears nothing.

    Args:
        config: this node's configuration.
        watch: on the local agent.
    """

    def __init__(self, config: ShardedConfig, watch: Watch) -> None:
        self._config, self._watch = config, watch
        self._word = Word(config.worker.run_id, config.worker.node)
        self.tell(None)
        self.show(-1, 0.0)

    def tell(self, host: str | None, *, finished: bool = False) -> None:
        """See Hearing."""
        self._word = Word(self._word.run_id, self._word.node, host, finished)
        self._watch.answer_with(self._word.encoded().decode())

    def hear(self) -> Mapping[str, Word]:
        """See Hearing; waits a moment for those that are slow to answer."""
        others = self._watch.sight.live & {node.node for node in self._config.nodes} - {self._word.node}
        answers = self._watch.who_is_here(others, _ANSWER_SECONDS)
        words = [read_word(said.encode(), node, self._config) for node, said in answers.items()]
        return {word.node: word for word in words if word is not None}

    def choose(self, words: Mapping[str, Word]) -> str | None:
        """See Hearing: the one that holds it; else, of healthy members, the primary or who has most cores."""
        sight, own = self._watch.sight, self._word.node
        if not sight.connected or own not in sight.live:
            return None
        if held := held_by(self._config.rendezvous_order, words):
            return held
        here = {own, *(node for node, word in words.items() if not word.finished)}
        fleet = [node.node for node in self._config.nodes]
        return rendezvous_host(roster(sight.members, here & sight.live, fleet, self._word.run_id))

    def why(self) -> str:
        """See Hearing."""
        sight = self._watch.sight
        if not sight.connected:
            return "waits for the Serf agent of this node, which does not answer"
        fleet = [node.node for node in self._config.nodes]
        found = roster(sight.members, sight.live, fleet, self._word.run_id)
        return f"no member that Serf knows takes part: {found.waits_for() or 'their tags are on their way'}"

    @property
    def dead(self) -> frozenset[str]:
        """See Hearing."""
        sight = self._watch.sight
        return sight.dead if sight.connected else frozenset()

    def show(self, round_number: int, tokens_per_second: float) -> None:
        """See Hearing: as the node's tags, with its health."""
        worker = self._config.worker
        vitals = Vitals(
            beat_age_seconds=self._watch.beat_age(),
            memory_free=memory_free(),
            disk_checkpoints=checkpoints_that_fit(worker.state_dir, self._config.checkpoint_bytes),
        )
        self._watch.say(
            Tags(
                role="primary" if worker.is_primary else "compute",
                cores=max(1, math.ceil(worker.usable_cores)),
                gpu=False,
                run=worker.run_id,
                round=round_number,
                tokens_per_second=tokens_per_second,
                health=round(health_of(vitals), 3),
            )
        )

    def close(self) -> None:
        """See Hearing; the agent stays."""
        self._watch.answer_with(None)
        self._watch.close()


def open_hearing(config: ShardedConfig) -> Hearing:
    """What the run's coordination has: Serf, or a port of its own.

    Raises:
        WorkerError: this node cannot listen, or the agent's configuration cannot be read.
    """
    gossip = config.worker.coordination.gossip
    if gossip is None:
        return Beacon(config)
    return GossipHearing(config, Watch(*read_rpc(gossip)))
