"""The rounds of a run on one node: train until the common clock says stop, average, commit, again.

The clock: a round's training ends at one time for all. The primary sets the first; each averaging sets the
next, from what all members were told in it (the latest arrival, plus the longest averaging, plus the round's
seconds), so all know the same time without another message. Between averaging and training nothing waits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from tailtrain.errors import LostNodeError, PeerError
from tailtrain.worker.exchange import Averaged
from tailtrain.worker.joining import Joiner, Round
from tailtrain.worker.ledger import Contribution
from tailtrain.worker.membership import Membership
from tailtrain.worker.reading_progress import epochs_of
from tailtrain.worker.status import StatusFile, log
from tailtrain.worker.trainer import NO_WORK, Work
from tailtrain.worker.weights import is_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tailtrain.worker.announcements import View
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.node_state import NodeState
    from tailtrain.worker.swarm import Swarm

_POLL_SECONDS = 0.25
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_SLOW_SECONDS = 5.0  # an averaging that takes longer looks around for what is wrong
_LINGER_SECONDS = 15.0


class Stopped(Exception):  # noqa: N818 - no error: somebody asked this node to stop
    """The node was told to stop."""


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
        self._members = Membership(config, state, swarm)
        self._joiner = Joiner(config, state, status, self._members, swarm, self._sleep)
        self._committed_at = 0.0

    def run(self) -> None:
        """Train until the target is reached.

        Raises:
            Stopped: the node was told to stop; nothing committed is lost.
            FinishedElsewhereError: the others finished the run without this node.
            LostNodeError: a node was lost in a run that tolerates none.
        """
        while not self._state.commit.finished:
            now = self._joiner.join()
            while now is not None and not self._state.commit.finished:
                now = self._one_round(now)
        self._members.say("finished", wait=True)
        self._status.set("finished", **self._state.commit.to_status())
        self._linger()

    def _one_round(self, current: Round) -> Round | None:
        """Train and average; the next round, or None if this node has to join again."""
        members = self._members
        started = members.now()
        members.say("training", current.number, current.ends)
        idle = self._state.supply.idle
        self._status.set("training", idle, round=current.number, **self._state.commit.to_status())
        ends = current.ends - members.offset
        work = self._state.trainer.train_until(ends, self._state.progress, self._stopping)
        self._sleep(0.0)
        if work.train_seconds > 0:
            members.speed = work.tokens / work.train_seconds
        arrived = members.now()
        outcome = self._average(current, work)
        if outcome is None:
            self._state.roll_back()
            return None
        averaged, seconds, view = outcome
        self._state.average_into(averaged.group, averaged.mean, min(seconds, self._round_seconds))
        self._committed_at = members.now()
        following = self._following(averaged)
        if not self._state.commit.finished:
            members.say("training", following.number, following.ends)
        self._state.save()
        self._write_progress(current, started, arrived, work, averaged, view)
        lost = set(self._config.nodes) - set(averaged.group)
        if lost and not self._config.training.fault_tolerance:
            raise self._lost(lost)
        return following

    def _following(self, averaged: Averaged) -> Round:
        """The round after an averaging: the same for all its members, from what all were told in it."""
        members = averaged.group.values()
        allowance = min(self._round_seconds, max(member.averaging_seconds for member in members))
        ends = max(member.arrived for member in members) + allowance + self._round_seconds
        return Round(next(iter(members)).round + 1, ends)

    def _average(self, current: Round, work: Work) -> tuple[Averaged, float, View] | None:
        """Average with the others: the mean, the seconds it took, and who was seen.

        None if the others went on without this node.
        """
        self._status.set("averaging", **self._state.commit.to_status())
        vector = self._state.provisional()
        if vector is None:
            log(f"round {current.number}: this node's weights are not finite; its work is dropped")
            self._state.roll_back()
            vector, work = self._state.commit.weights, NO_WORK
        members = self._members
        began = members.now()
        while True:
            self._sleep(0.0)
            attempt_began = members.now()
            view = members.look()
            if members.overtaken(view, current.number, self._committed_at):
                return None
            expected = members.in_round(view, current.number)
            own = self._contribution(current, work, attempt_began)
            averaged: Averaged | Literal["overtaken"] | None = None
            if len(expected) == 1 and members.suffice(expected):
                averaged = Averaged(vector, {own.node: own})
            elif members.suffice(expected):
                averaged = self._attempt(current, vector, own, len(expected), began)
            if averaged == "overtaken":
                return None
            if isinstance(averaged, Averaged):
                return averaged, members.now() - attempt_began, view
            if members.too_late(began):
                raise self._lost(set(self._config.nodes) - expected)
            self._pause(view, current)
            self._sleep(_RETRY_SECONDS)

    def _attempt(
        self, current: Round, vector: Tensor, own: Contribution, expected: int, began: float
    ) -> Averaged | Literal["overtaken"] | None:
        """One try, watched: the mean, or None to try again."""
        assert self._swarm is not None  # noqa: S101 - a node that is alone never gets here
        members = self._members
        attempt = self._swarm.average(vector, own, expected)
        looked = members.now()
        try:
            while True:
                self._sleep(0.0)
                averaged = attempt.wait(_POLL_SECONDS)
                if averaged is not None:
                    if is_finite(averaged.mean):
                        return averaged
                    log(f"round {current.number}: the mean is not finite; not committed")
                    return None
                now = members.now()
                if now - began > _SLOW_SECONDS and now - looked > _LOOK_SECONDS:
                    view = members.look()
                    if members.overtaken(view, current.number, self._committed_at):
                        return "overtaken"
                    self._pause(view, current)
                    looked = members.now()
                if members.too_late(began):
                    return None
        except PeerError as error:
            log(f"round {current.number}: {error}; trying again")
            return None
        finally:
            attempt.cancel()

    def _contribution(self, current: Round, work: Work, arrived: float) -> Contribution:
        commit = self._state.commit
        return Contribution(
            node=self._config.node,
            round=current.number,
            before=commit.own,
            tokens=work.tokens,
            records=sum(work.records.values()),
            loss=work.loss,
            train_seconds=work.train_seconds,
            cpu_seconds=work.cpu_seconds,
            averaging_seconds=commit.averaging_seconds,
            arrived=arrived,
            base=commit.digest,
            ledger=commit.ledger,
            taken_over={node: count for node, count in work.records.items() if node != self._config.node},
            progress=self._state.trainer.stream.progress(),
        )

    def _pause(self, view: View, current: Round) -> None:
        """Say that this node waits for others, and whom it misses."""
        present = self._members.in_round(view, current.number)
        self._members.introduce(present)
        self._members.say("paused", current.number, current.ends)
        state: Literal["averaging", "paused"] = "averaging" if self._members.suffice(present) else "paused"
        self._status.set(state, self._members.waits_for(present), **self._state.commit.to_status())

    def _lost(self, nodes: set[str]) -> LostNodeError:
        return LostNodeError(
            "a node was lost and this run tolerates no loss",
            host=", ".join(sorted(nodes)),
            fix="Bring it back and resume: the run goes on from its last round",
        )

    def _linger(self) -> None:
        """Stay a moment, so that a node that missed the last averaging can load the final state."""
        ends = time.monotonic() + _LINGER_SECONDS
        while time.monotonic() < ends and not self._stopping():
            if self._members.present(self._members.look()) == {self._config.node}:
                return
            time.sleep(_RETRY_SECONDS)

    @property
    def _round_seconds(self) -> float:
        return self._config.training.round_seconds

    def _write_progress(
        self, current: Round, started: float, arrived: float, work: Work, averaged: Averaged, view: View
    ) -> None:
        ended = self._members.now()
        commit = self._state.commit
        self._status.add_progress(
            {
                "round": current.number,
                "started_unix": round(started, 3),
                "ended_unix": round(ended, 3),
                "train_seconds": round(work.train_seconds, 3),
                "averaging_seconds": round(ended - arrived, 3),
                "group": [averaged.group[node].to_progress() for node in sorted(averaged.group)],
                "total_tokens": commit.total_tokens,
                "weights_sha256": commit.digest,
                "epochs": epochs_of(commit.progress, self._state.supply.shards),
                "live": sorted(self._members.in_round(view, current.number) | set(averaged.group)),
            }
        )
        self._status.set(
            "training",
            f"round {current.number} averaged by {len(averaged.group)} of {len(self._config.nodes)} nodes",
            round=current.number,
            loss=work.loss,
            tokens_per_second=round(self._members.speed, 1),
            **commit.to_status(),
        )

    def _sleep(self, seconds: float) -> None:
        """Wait; Stopped as soon as this node is told to stop."""
        ends = time.monotonic() + seconds
        while not self._stopping():
            left = ends - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_SECONDS, left))
        raise Stopped
