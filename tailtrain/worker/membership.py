"""Who is there: what this node tells its peers, what it hears from them, and by which clock.

The clock of the run is the primary's. Each node measures its own clock's distance from it when it joins, and
again after each averaging of all: clocks are set while programs run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tailtrain.worker.announcements import (
    LATE_SECONDS,
    Announcement,
    Phase,
    View,
    leader_of,
    nodes_in_round,
    ready_nodes,
)
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.node_state import NodeState
    from tailtrain.worker.peers.swarm import Swarm  # a node alone needs no hivemind
    from tailtrain.worker.peers.table_tasks import ClockReading
    from tailtrain.worker.presence import Presence  # a node without gossip needs no msgpack

_SAY_SECONDS = 4.0  # below READY_SECONDS
_AVOID_SECONDS = 10.0
_CLOCK_NOTE_SECONDS = 0.1
_RESTART_SECONDS = 3.0  # a node takes longer to start again; clocks agree better than this


class Membership:
    """This node's view of the others, and their view of it.

    Args:
        config: this node's configuration.
        state: what it has committed.
        swarm: its peers; None where it is alone in the fleet.
        presence: what gossip says; None where there is none.

    Attributes:
        gossip: as given.
        needed: how many nodes an averaging takes: the quorum, or all in a run that tolerates no loss.
        offset: seconds to add to this node's clock to have the primary's.
        speed: this node's tokens per second in the last round, as announced.
    """

    def __init__(
        self, config: WorkerConfig, state: NodeState, swarm: Swarm | None, presence: Presence | None = None
    ) -> None:
        self._config, self._state, self._swarm, self.gossip = config, state, swarm, presence
        tolerant = config.training.fault_tolerance
        self.needed = config.coordination.quorum if tolerant else len(config.nodes)
        self.offset = 0.0
        self.speed = 0.0
        self._peers = {peer.node for peer in config.coordination.peers}
        self._primary = config.primary
        self._serving = swarm.serves() if swarm is not None else set()
        self._avoided: dict[str, float] = {}
        self._asked: Future[ClockReading | None] | None = None
        self._said: tuple[Phase, int] | None = None
        self._said_at = 0.0

    def now(self) -> float:
        """The run's clock in unix seconds."""
        return time.time() + self.offset

    def compare_clocks(self, view: View) -> None:
        """Measure how far the primary's clock is from this node's; the last measure stays if it is away."""
        said = view.get(self._primary)
        if self._swarm is None or said is None or not said.in_round:
            return
        reading = self._swarm.clock_of(self._primary)
        if reading is not None:
            self._set_offset(reading.offset)
        self._asked = None  # what was asked before is older

    def follow_clock(self) -> None:
        """Take what the primary's clock said since the last time, and ask it again; waits for nothing.

        The offset moves only as far as the reading proves: one of a starved node may be wrong by a second.
        """
        if self._swarm is None or self._primary == self._config.node:
            return
        if self._asked is not None and self._asked.done():
            reading, self._asked = self._swarm.read_clock(self._asked), None
            if reading is not None:
                least, most = reading.offset - reading.error, reading.offset + reading.error
                self._set_offset(min(max(self.offset, least), most))
        if self._asked is None:
            self._asked = self._swarm.ask_clock(self._primary)

    def _set_offset(self, offset: float) -> None:
        if abs(offset - self.offset) > _CLOCK_NOTE_SECONDS:
            log(f"the primary's clock is {offset:+.3f} s from this node's; rounds follow it")
        self.offset = offset

    def look(self) -> View:
        """What the peers announce now."""
        return self._swarm.view() if self._swarm is not None else {}

    def say(self, phase: Phase, number: int = -1, ends: float = 0.0, *, wait: bool = False) -> None:
        """Announce what this node does; again only if it is something else, or was said some time ago.

        Args:
            phase: what it does.
            number: the round that it works on.
            ends: when that round's training ends.
            wait: whether to wait until the peers know it.
        """
        if self._said == (phase, number) and self.now() - self._said_at < _SAY_SECONDS:
            return
        self._said, self._said_at = (phase, number), self.now()
        if self._swarm is None:
            return
        anchor = self._state.anchor
        announcement = Announcement(
            node=self._config.node,
            phase=phase,
            committed=anchor.round,
            digest=anchor.digest,
            round=number,
            ends=ends,
            total_tokens=self._state.commit.total_tokens,
            tokens_per_second=self.speed,
            sent=self._said_at,
        )
        self._swarm.announce(announcement, wait=wait)

    def introduce(self, present: set[str]) -> None:
        """Connect to the peers that are not there; old announcements of theirs may still be in the table."""
        if self._swarm is not None and (missing := self._peers - present):
            self._swarm.introduce(missing)

    def in_round(self, view: View, number: int) -> set[str]:
        """Nodes that take part in a round, this one included; who is dead for gossip does not."""
        found = nodes_in_round(view, number, self.now())
        if self.gossip is not None:
            found -= self.gossip.gone(view, self.offset)
        return found | {self._config.node}

    def present(self, view: View) -> set[str]:
        """Nodes that would take part at once, in whatever round they are, this one included."""
        now = self.now()
        busy = {name for name, said in view.items() if name in nodes_in_round(view, said.round, now)}
        return {self._config.node} | ready_nodes(view, now) | busy

    def suffice(self, nodes: set[str]) -> bool:
        """Whether these nodes can average: enough of them, and in centralized coordination the primary."""
        if self.gossip is not None and self.gossip.cut_off:
            return False
        return len(nodes) >= self.needed and (not self._config.centralized or self._primary in nodes)

    def waits_for(self, present: set[str]) -> str:
        """In plain words, for whom this node waits."""
        if self.gossip is not None and self.gossip.cut_off:
            others = ", ".join(sorted(self._peers))
            return f"nobody answers, so this node is cut off or all others are away; waits for {others}"
        missing = sorted(set(self._config.nodes) - present)
        needs = f"{len(present)} of {len(self._config.nodes)} nodes are here, {self.needed} are needed"
        if not missing:
            return "all nodes are here; waits for their answers"
        if len(present) >= self.needed and self._primary in missing:
            return f"waits for the primary {self._primary}; {needs}"
        reasons = [f"{node}: {why}" for node, why in self._left_out().items()]
        if self.gossip is not None and (why := self.gossip.why()):
            reasons.append(why)
        because = f" ({'; '.join(reasons)})" if reasons else ""
        return f"waits for {', '.join(missing)}{because}; {needs}"

    def _left_out(self) -> dict[str, str]:
        """Peers that are there but cannot take part, and why, in order of name."""
        return {} if self._swarm is None else dict(sorted(self._swarm.left_out.items()))

    def serves(self, node: str) -> bool:
        """Whether a peer can serve its state: a client-mode peer cannot."""
        return node in self._serving

    def avoid(self, node: str) -> None:
        """Do not ask this peer for its state for a while: it did not answer."""
        self._avoided[node] = self.now() + _AVOID_SECONDS

    def available(self) -> set[str]:
        """Peers that serve their state, without those to be avoided."""
        return {node for node in self._serving if self._avoided.get(node, 0.0) < self.now()}

    def leader(self, view: View) -> Announcement | None:
        """Whose round to join; in centralized coordination only the primary serves its state and leads."""
        leader = leader_of(view, self.available(), self.now())
        if leader is None and self._config.centralized and self._config.is_primary:
            # The primary came back while the others still work on the round after its checkpoint.
            follower = leader_of(view, self._peers, self.now())
            following = self._state.commit.round + 1
            if follower is not None and follower.in_round and follower.round == following:
                return follower
        return leader

    def overtaken(self, view: View, number: int, committed_at: float) -> bool:
        """Whether those who lead are past this round, or (centralized) the primary went back before it.

        Args:
            view: what is announced.
            number: the round that this node works on.
            committed_at: when this node committed last; what was said before is a leftover.
        """
        for said in view.values():
            if not self.serves(said.node):
                continue
            if said.phase == "finished" or said.committed >= number:
                return True
            lately = said.sent > committed_at + _RESTART_SECONDS
            if self._config.centralized and said.in_round and said.round < number and lately:
                return True
        return False

    def too_late(self, began: float) -> bool:
        """Whether a run that tolerates no loss has waited long enough to call a node lost."""
        training = self._config.training
        patience = max(training.averaging_timeout_seconds, LATE_SECONDS + _SAY_SECONDS)
        return not training.fault_tolerance and self.now() - began > patience
