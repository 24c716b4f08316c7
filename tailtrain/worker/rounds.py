"""The rounds of a run on one node: join, train until the common clock says stop, average, commit, again.

The clock: a round's training ends at one time for all. The primary sets the first; each averaging sets the
next, from what all members were told in it (the latest arrival, plus the longest averaging, plus the round's
seconds), so all know the same time without another message. Between averaging and training nothing waits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tailtrain.errors import PeerError, WorkerError
from tailtrain.worker.announcements import (
    LATE_SECONDS,
    READY_SECONDS,
    Announcement,
    Phase,
    View,
    leader_of,
    nodes_in_round,
    ready_nodes,
)
from tailtrain.worker.exchange import Averaged
from tailtrain.worker.ledger import Contribution
from tailtrain.worker.status import StatusFile, log
from tailtrain.worker.trainer import NO_WORK, Work
from tailtrain.worker.weights import is_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.node_state import NodeState
    from tailtrain.worker.swarm import Swarm  # a node alone needs no hivemind

_POLL_SECONDS = 0.25
_LOOK_SECONDS = 1.0
_SAY_SECONDS = 4.0  # below READY_SECONDS
_SETTLE_SECONDS = 5.0  # once the quorum is there, how long the clock waits for the rest
_SLOW_SECONDS = 5.0  # an averaging that takes longer looks around for what is wrong
_LINGER_SECONDS = 15.0
_RETRY_SECONDS = 0.5
_AVOID_SECONDS = 10.0
_JOIN_MARGIN_SECONDS = 3.0
_CLOCK_NOTE_SECONDS = 0.1
_RESTART_SECONDS = 3.0  # a node takes longer to start again; clocks agree better than this


class Stopped(Exception):  # noqa: N818 - no error: somebody asked this node to stop
    """The node was told to stop."""


@dataclass(frozen=True)
class Round:
    """A round that this node takes part in, and when its training ends (unix seconds)."""

    number: int
    ends: float


class RoundLoop:
    """Runs rounds until the run is finished.

    Args:
        config: this node's configuration.
        state: what it has committed.
        status: where it says what it does.
        swarm: its peers; None where it is alone in the fleet.
        stopping: whether it was told to stop.
    """

    def __init__(
        self,
        config: WorkerConfig,
        state: NodeState,
        status: StatusFile,
        swarm: Swarm | None,
        stopping: Callable[[], bool],
    ) -> None:
        self._config, self._state, self._status = config, state, status
        self._swarm, self._stopping = swarm, stopping
        self._speed = 0.0
        self._said = 0.0
        self._offset = 0.0
        self._committed_at = 0.0
        self._avoid: dict[str, float] = {}
        self._serving = swarm.serves() if swarm is not None else set()
        self._peers = {peer.node for peer in config.coordination.peers}
        self._primary = next(
            (peer.node for peer in config.coordination.peers if peer.role == "primary"), config.node
        )

    def run(self) -> None:
        """Train until the target is reached.

        Raises:
            Stopped: the node was told to stop; nothing committed is lost.
            WorkerError: a node was lost in a run that tolerates none.
        """
        while not self._state.commit.finished:
            now = self._join()
            while now is not None and not self._state.commit.finished:
                now = self._one_round(now)
        self._say("finished", -1, 0.0, wait=True)
        self._status.set("finished", **self._committed())
        self._linger()

    # Joining.

    def _join(self) -> Round | None:
        """Find the present round, with the state that it began from; None if the run has finished."""
        since = self._now()
        quorum_since: float | None = None
        compared = False
        while True:
            self._check_stop()
            view = self._look()
            leader = self._leader(view)
            if leader is not None:
                if not compared:
                    self._compare_clocks(view)
                    compared = True
                joined = self._follow(leader)
                if joined is not None or self._state.commit.finished:
                    return joined
                continue
            waiting = self._waiting(view)
            self._say_now_and_then("ready", -1, 0.0)
            self._introduce(self._peers - waiting)
            now = self._now()
            if len(waiting) < self._needed:
                quorum_since = None
            elif quorum_since is None:
                quorum_since = now
            if self._config.is_primary and quorum_since is not None and not self._catch_up(view):
                complete = len(waiting) == len(self._config.nodes)
                if complete or now - quorum_since > _SETTLE_SECONDS:
                    return Round(self._state.commit.round + 1, now + self._round_seconds)
            message = self._waits_for(waiting)
            if now - since > self._config.training.start_timeout_seconds:
                message += f"; not there within {self._config.training.start_timeout_seconds:g} s"
            self._status.set("waiting", message, **self._committed())
            self._sleep(_LOOK_SECONDS)

    def _leader(self, view: View) -> Announcement | None:
        """Whose round to join; in centralized coordination only the primary serves its state and leads."""
        now = self._now()
        leader = leader_of(view, self._available(now), now)
        if leader is None and self._config.centralized and self._config.is_primary:
            # The primary came back while the others still work on the round after its checkpoint.
            follower = leader_of(view, self._peers, now)
            following = self._state.commit.round + 1
            if follower is not None and follower.in_round and follower.round == following:
                return follower
        return leader

    def _available(self, now: float) -> set[str]:
        """Peers that serve their state, without those that did not answer just now."""
        return {node for node in self._serving if self._avoid.get(node, 0.0) < now}

    def _follow(self, leader: Announcement) -> Round | None:
        """Join the leader's round, if there is time left in it; load the state that it began from first."""
        commit = self._state.commit
        if leader.phase != "finished" and not self._config.centralized and commit.round >= leader.round:
            # This node is ahead of everybody: the others load from it.
            return Round(commit.round + 1, self._now() + self._round_seconds)
        same = commit.round == leader.committed and commit.digest == leader.digest
        leads_from_behind = leader.node not in self._serving
        if leader.phase != "finished":
            left = leader.ends - self._now()
            margin = min(_JOIN_MARGIN_SECONDS, self._round_seconds / 2)
            if leader.phase != "paused" and left < margin:
                self._status.set("waiting", f"round {leader.round} is being averaged; joins the next")
                self._sleep(_RETRY_SECONDS)
                return None
            if same or leads_from_behind:
                return Round(leader.round, leader.ends)
        elif same:
            self._state.finish()
            return None
        self._load_from(leader)
        return None

    def _load_from(self, leader: Announcement) -> None:
        """Take over the leader's committed state."""
        assert self._swarm is not None  # noqa: S101 - there is no leader without peers
        self._status.set("waiting", f"loads the state after round {leader.committed} from {leader.node}")
        try:
            self._state.adopt(leader.node, self._swarm.download(leader.node))
        except PeerError as error:
            log(f"cannot load the state: {error}")
            self._avoid[leader.node] = self._now() + _AVOID_SECONDS
            self._sleep(_RETRY_SECONDS)

    def _catch_up(self, view: View) -> bool:
        """Before the primary starts the clock: load from a waiting node that has committed more."""
        now = self._now()
        ahead = [
            said
            for said in view.values()
            if said.node in self._available(now)
            and now - said.sent < READY_SECONDS
            and said.committed > self._state.commit.round
        ]
        if not ahead:
            return False
        self._load_from(max(ahead, key=lambda said: (said.committed, said.node)))
        return True

    def _waiting(self, view: View) -> set[str]:
        """Nodes that would take part at once, this one included."""
        now = self._now()
        busy = {name for name, said in view.items() if name in nodes_in_round(view, said.round, now)}
        return {self._config.node} | ready_nodes(view, now) | busy

    # One round.

    def _one_round(self, current: Round) -> Round | None:
        """Train and average; the next round, or None if this node has to join again."""
        started = self._now()
        self._say("training", current.number, current.ends)
        self._status.set("training", round=current.number, **self._committed())
        work = self._state.trainer.train_until(
            current.ends - self._offset, self._state.progress, self._stopping
        )
        self._check_stop()
        if work.train_seconds > 0:
            self._speed = work.tokens / work.train_seconds
        arrived = self._now()
        outcome = self._average(current, work)
        if outcome is None:
            self._state.roll_back()
            return None
        averaged, attempt_seconds, view = outcome
        seconds = min(attempt_seconds, self._round_seconds)
        self._state.average_into(averaged.group, averaged.mean, seconds)
        self._committed_at = self._now()
        members = averaged.group.values()
        allowance = max(member.averaging_seconds for member in members)
        following = Round(
            current.number + 1, max(member.arrived for member in members) + allowance + self._round_seconds
        )
        if not self._state.commit.finished:
            self._say("training", following.number, following.ends)
        self._state.save()
        self._write_progress(current, started, arrived, work, averaged, view)
        lost = set(self._config.nodes) - set(averaged.group)
        if lost and not self._config.training.fault_tolerance:
            raise self._lost(lost)
        return following

    def _average(self, current: Round, work: Work) -> tuple[Averaged, float, View] | None:
        """Average with the others; None if they went on without this node."""
        self._status.set("averaging", **self._committed())
        vector = self._state.provisional()
        if vector is None:
            log(f"round {current.number}: this node's weights are not finite; its work is dropped")
            self._state.roll_back()
            vector, work = self._state.commit.weights, NO_WORK
        began = self._now()
        while True:
            self._check_stop()
            attempt_began = self._now()
            view = self._look()
            if self._overtaken(view, current.number):
                return None
            expected = nodes_in_round(view, current.number, self._now()) | {self._config.node}
            own = self._contribution(current, work, attempt_began)
            if len(expected) == 1 and self._config.coordination.quorum == 1:
                return Averaged(vector, {own.node: own}), self._now() - attempt_began, view
            if len(expected) >= self._needed:
                averaged = self._attempt(current, vector, own, len(expected), began)
                if averaged == "overtaken":
                    return None
                if isinstance(averaged, Averaged):
                    return averaged, self._now() - attempt_began, view
            if self._too_late(began):
                raise self._lost(set(self._config.nodes) - expected)
            self._pause(view, current)
            self._sleep(_RETRY_SECONDS)

    def _attempt(
        self, current: Round, vector: Any, own: Contribution, expected: int, began: float
    ) -> Averaged | Literal["overtaken"] | None:
        """One try, watched: the mean, or None to try again."""
        assert self._swarm is not None  # noqa: S101 - a node that is alone never gets here
        attempt = self._swarm.average(vector, own, expected)
        looked = self._now()
        try:
            while True:
                self._check_stop()
                averaged = attempt.wait(_POLL_SECONDS)
                if averaged is not None:
                    return averaged if self._acceptable(averaged, current) else None
                now = self._now()
                if now - began > _SLOW_SECONDS and now - looked > _LOOK_SECONDS:
                    view = self._look()
                    if self._overtaken(view, current.number):
                        return "overtaken"
                    self._pause(view, current)
                    looked = self._now()
                if self._too_late(began):
                    return None
        except PeerError as error:
            log(f"round {current.number}: {error}; trying again")
            return None
        finally:
            attempt.cancel()

    def _acceptable(self, averaged: Averaged, current: Round) -> bool:
        if is_finite(averaged.mean):
            return True
        log(f"round {current.number}: the mean is not finite; not committed")
        return False

    def _contribution(self, current: Round, work: Work, arrived: float) -> Contribution:
        commit = self._state.commit
        return Contribution(
            node=self._config.node,
            round=current.number,
            before=commit.own,
            tokens=work.tokens,
            records=work.records,
            loss=work.loss,
            train_seconds=work.train_seconds,
            cpu_seconds=work.cpu_seconds,
            averaging_seconds=commit.averaging_seconds,
            arrived=arrived,
            base=commit.digest,
            ledger=commit.ledger,
        )

    def _overtaken(self, view: View, number: int) -> bool:
        """Whether those who lead are past this round, or (centralized) the primary went back before it."""
        for said in view.values():
            if said.node not in self._serving:
                continue
            if said.phase == "finished" or said.committed >= number:
                return True
            # Said well after this node's last commit, so it is no leftover from before.
            lately = said.sent > self._committed_at + _RESTART_SECONDS
            if self._config.centralized and said.in_round and said.round < number and lately:
                return True
        return False

    def _pause(self, view: View, current: Round) -> None:
        """Say that this node waits for others, and whom it misses."""
        present = nodes_in_round(view, current.number, self._now()) | {self._config.node}
        self._introduce(self._peers - present)
        self._say_now_and_then("paused", current.number, current.ends)
        enough = len(present) >= self._needed
        self._status.set("averaging" if enough else "paused", self._waits_for(present), **self._committed())

    def _waits_for(self, present: set[str]) -> str:
        missing = sorted(set(self._config.nodes) - present)
        needs = f"{len(present)} of {len(self._config.nodes)} nodes are here, {self._needed} are needed"
        if not missing:
            return "all nodes are here; waits for their answers"
        if len(present) >= self._needed and self._primary in missing:
            return f"waits for the primary {self._primary}; {needs}"
        return f"waits for {', '.join(missing)}; {needs}"

    def _lost(self, nodes: set[str]) -> WorkerError:
        return WorkerError(
            "a node was lost and this run tolerates no loss",
            host=", ".join(sorted(nodes)),
            fix="Bring it back and resume: the run goes on from its last round",
        )

    # The end.

    def _linger(self) -> None:
        """Stay a moment, so that a node that missed the last averaging can load the final state."""
        ends = self._now() + _LINGER_SECONDS
        while self._swarm is not None and self._now() < ends and not self._stopping():
            view = self._look()
            busy = {
                name
                for name, said in view.items()
                if said.phase != "finished"
                and (said.ends > self._now() - self._timeout or said.phase == "ready")
            }
            if not busy:
                return
            time.sleep(_RETRY_SECONDS)

    # Small things.

    @property
    def _round_seconds(self) -> float:
        return self._config.training.round_seconds

    @property
    def _timeout(self) -> float:
        return self._config.training.averaging_timeout_seconds

    @property
    def _needed(self) -> int:
        """How many nodes an averaging takes: the quorum, or all in a run that tolerates no loss."""
        tolerant = self._config.training.fault_tolerance
        return self._config.coordination.quorum if tolerant else len(self._config.nodes)

    def _too_late(self, began: float) -> bool:
        """Whether a run that tolerates no loss has waited long enough to call a node lost."""
        patience = max(self._timeout, LATE_SECONDS + _SAY_SECONDS)
        return not self._config.training.fault_tolerance and self._now() - began > patience

    def _now(self) -> float:
        """The common clock: this node's, corrected to the primary's."""
        return time.time() + self._offset

    def _compare_clocks(self, view: View) -> None:
        """Measure how far the primary's clock is from this node's; the last measure stays if it is away."""
        said = view.get(self._primary)
        if self._swarm is None or said is None or not said.in_round:
            return
        offset = self._swarm.clock_offset(self._primary)
        if offset is None:
            return
        if abs(offset - self._offset) > _CLOCK_NOTE_SECONDS:
            log(f"the primary's clock is {offset:+.3f} s from this node's; rounds follow it")
        self._offset = offset

    def _look(self) -> View:
        return self._swarm.view() if self._swarm is not None else {}

    def _introduce(self, missing: set[str]) -> None:
        """Connect to peers that are not there: a stale announcement of theirs may still be in the table."""
        if self._swarm is not None and missing:
            self._swarm.introduce(missing)

    def _say(self, phase: Phase, number: int, ends: float, *, wait: bool = False) -> None:
        self._said = self._now()
        if self._swarm is None:
            return
        commit = self._state.commit
        self._swarm.announce(
            Announcement(
                node=self._config.node,
                phase=phase,
                committed=commit.round,
                digest=commit.digest,
                round=number,
                ends=ends,
                total_tokens=commit.total_tokens,
                tokens_per_second=self._speed,
                sent=self._said,
            ),
            wait=wait,
        )

    def _say_now_and_then(self, phase: Phase, number: int, ends: float) -> None:
        if self._now() - self._said > _SAY_SECONDS:
            self._say(phase, number, ends)

    def _committed(self) -> dict[str, Any]:
        commit = self._state.commit
        return {
            "tokens": commit.own.tokens,
            "records": commit.own.records,
            "total_tokens": commit.total_tokens,
            "weights_sha256": commit.digest,
        }

    def _write_progress(
        self, current: Round, started: float, arrived: float, work: Work, averaged: Averaged, view: View
    ) -> None:
        ended = self._now()
        self._status.add_progress(
            {
                "round": current.number,
                "started_unix": round(started, 3),
                "ended_unix": round(ended, 3),
                "train_seconds": round(work.train_seconds, 3),
                "averaging_seconds": round(ended - arrived, 3),
                "group": [averaged.group[node].to_progress() for node in sorted(averaged.group)],
                "total_tokens": self._state.commit.total_tokens,
                "weights_sha256": self._state.commit.digest,
                "live": sorted(
                    {self._config.node, *averaged.group, *nodes_in_round(view, current.number, self._now())}
                ),
            }
        )
        self._status.set(
            "training",
            f"round {current.number} averaged by {len(averaged.group)} of {len(self._config.nodes)} nodes",
            round=current.number,
            loss=work.loss,
            tokens_per_second=round(self._speed, 1),
            **self._committed(),
        )

    def _check_stop(self) -> None:
        if self._stopping():
            raise Stopped

    def _sleep(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self._check_stop()
            time.sleep(min(_POLL_SECONDS, left))
