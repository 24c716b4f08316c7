"""The rounds of a run on one node: train until the common clock says stop, average, commit, again.

The clock: a round's training ends at one time for all. The primary sets the first; each averaging of all sets
the following ones (`schedule`). Between averaging and training nothing waits. With gossip, pairs average in
the rounds before the next averaging of all: who of its members is there follows from gossip, and from nothing
else that nodes would have to agree on. A node whose partner does not come, or that has none, keeps what it
has trained and brings it to its next averaging.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailtrain.worker.averaging import Averaging, lost
from tailtrain.worker.joining import Joiner, primary_to_serve, remember_that_the_primary_has_it
from tailtrain.worker.measured import FILE, Measurements
from tailtrain.worker.membership import Membership
from tailtrain.worker.round_record import Recorder, Times
from tailtrain.worker.schedule import Round, following
from tailtrain.worker.uncommitted import Uncommitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.gossip.health import Speed
    from tailtrain.worker.node_state import NodeState
    from tailtrain.worker.peers.swarm import Swarm
    from tailtrain.worker.presence import Presence
    from tailtrain.worker.status import StatusFile

_POLL_SECONDS = 0.25
_RETRY_SECONDS = 0.5
_UNWELL_SECONDS = 2.0
_LINGER_SECONDS = 15.0
_GOODBYE_SECONDS = 5.0
_AWAY = "others have paired since this node averaged with all; it is with them again after the next time"


class Stopped(Exception):  # noqa: N818 - no error: somebody asked this node to stop
    """The node was told to stop."""


class RoundLoop:
    """Runs rounds until the run is finished.

    Args:
        config: this node's configuration.
        state: what it has committed.
        status: where it says what it does.
        swarm: its peers; None where it is alone in the fleet.
        presence: what gossip says of them; None where there is none.
        stopping: whether it was told to stop.
    """

    def __init__(
        self,
        config: WorkerConfig,
        state: NodeState,
        status: StatusFile,
        swarm: Swarm | None,
        presence: Presence | None,
        stopping: Callable[[], bool],
    ) -> None:
        self._config, self._state, self._status = config, state, status
        self._gossip, self._stopping = presence, stopping
        self._members = Membership(config, state, swarm, presence)
        self._joiner = Joiner(config, state, status, self._members, swarm, self._sleep)
        self._uncommitted = Uncommitted(config.node, state)
        self._averaging = Averaging(
            config, state, status, self._members, swarm, self._uncommitted, self._sleep
        )
        measured = Measurements(config.state_dir / FILE, config)
        self._recorder = Recorder(config, state, status, self._members, measured)
        self._pace: Speed = measured.speed
        self._current = Round(-1, 0.0)

    def run(self) -> None:
        """Train until the target is reached.

        Raises:
            Stopped: the node was told to stop; nothing that all have averaged is lost.
            FinishedElsewhereError: the others finished the run without this node.
            LostNodeError: a node was lost in a run that tolerates none.
        """
        try:
            while not self._state.commit.finished:
                self._wait_until_well()
                now = self._joiner.join()
                self._uncommitted.clear()
                if self._gossip and now is not None and now.number > self._state.anchor.round + 1:
                    self._state.stand_by(_AWAY)
                while now is not None and not self._state.commit.finished:
                    now = self._until_all(now)
        except Stopped:
            self._state.save_if_due(stopping=True)
            raise
        self._end()

    def _until_all(self, current: Round) -> Round | None:
        """The rounds up to the next averaging of all; the following ones, or None to join again."""
        members, gossip = self._members, self._gossip
        self._current = current
        started = members.now()
        if gossip is not None:
            gossip.answer(current.number, "pairs" if current.pair_ends else "waits")
        for number, ends in current.pairs:
            if members.now() >= ends:
                continue
            if gossip is not None and not members.suffice(set(gossip.here())):
                gossip.answer(current.number, "waits")  # or others would wait for it in pairs
                break
            started = members.now()
            self._train(number, ends, pairs=True)
            self._average_pair(number, ends, started)
            if gossip is not None and not gossip.well:
                self._state.roll_back()
                return None
        else:
            started = members.now()
            self._train(current.number, current.ends)
        return self._average_all(current, started)

    def _train(self, number: int, ends: float, *, pairs: bool = False) -> None:
        """Train until a round's end: all of its time, or as much as this node's health allows."""
        members, gossip = self._members, self._gossip
        began, idle, anchor = members.now(), self._state.supply.idle, self._state.anchor
        members.say("training", self._current.number, self._current.ends)
        idle = self._state.unsaved or idle
        self._status.set("training", idle, round=number, **self._state.commit.to_status())
        if gossip is not None and pairs:
            gossip.call_roll(anchor.group, ends - began)
        health = gossip.health if gossip is not None and self._config.training.health_weighted else 1.0
        until = began + health * (ends - began) - members.offset
        rounds = number - anchor.round - 1 if gossip is not None else 0
        progress = self._state.progress_after(rounds)
        work = self._state.trainer.train_until(until, progress, self._interrupted)
        if health < 1.0:
            self._sleep(ends - members.now())
        self._sleep(0.0)
        if gossip is not None:
            gossip.note()
        if work.train_seconds > 0:
            members.speed = work.tokens / work.train_seconds
            self._pace = self._pace.after(members.speed)
        self._uncommitted.add(work)

    def _average_pair(self, number: int, due: float, started: float) -> None:
        """Average with this round's partner, if there is one and it comes."""
        assert self._gossip is not None  # noqa: S101 - there are no pairs without gossip
        group = self._gossip.partners(self._state.anchor.group, number)
        times = Times(started, due, self._members.now(), self._state.anchor.round)
        outcome = self._averaging.of_pair(number, group) if len(group) > 1 else None
        if outcome is not None:
            self._state.average_pair(outcome.averaged.group, outcome.averaged.mean)
            work = self._uncommitted.work
            self._uncommitted.clear()
            self._recorder.write(number, times, work, outcome)
        self._gossip.measure(self._pace, number + 1)

    def _average_all(self, current: Round, started: float) -> Round | None:
        """Average with all, commit, and work out what follows; None if this node has to join again."""
        members = self._members
        times = Times(started, current.ends, members.now(), current.number - len(current.pair_ends) - 1)
        outcome = self._averaging.of_all(current)
        if outcome is None:
            self._state.roll_back()
            return None
        group = outcome.averaged.group
        seconds = min(outcome.seconds, self._config.training.round_seconds)
        self._state.average_into(group, outcome.averaged.mean, seconds)
        self._averaging.committed_at = members.now()
        work = self._uncommitted.work
        self._uncommitted.clear()
        after = following(self._config, group.values(), self._state.commit.total_tokens)
        if not self._state.commit.finished:
            members.say("training", after.number, after.ends)
        if self._gossip is not None:
            self._gossip.measure(self._pace, current.number + 1)
        self._state.save_if_due()
        members.follow_clock()
        self._recorder.write(current.number, times, work, outcome)
        away = set(self._config.nodes) - set(group)
        if away and not self._config.training.fault_tolerance:
            raise lost(away)
        return after if self._gossip is None or self._gossip.well or self._state.commit.finished else None

    def _wait_until_well(self) -> None:
        """A node that is not healthy enough takes no part until it is."""
        gossip = self._gossip
        if gossip is None:
            return
        gossip.measure(self._pace, self._state.commit.round + 1)
        while not gossip.well:
            gossip.answer(-1, "waits")
            message = f"its health is {gossip.health:.2f}: takes no part until it is above a half"
            self._status.set("paused", message, **self._state.commit.to_status())
            self._sleep(_UNWELL_SECONDS)
            gossip.measure(self._pace, self._state.commit.round + 1)

    def _interrupted(self) -> bool:
        """Asked before each step: whether to stop. Says that this node is there while its agent cannot."""
        if self._gossip is not None and not self._gossip.connected:
            self._members.say("training", self._current.number, self._current.ends)
        return self._stopping()

    def _end(self) -> None:
        """Tell the others, and stay until they are done too."""
        gossip, commit = self._gossip, self._state.commit
        self._members.say("finished", wait=True)
        seen: dict[str, Any] = {}
        if gossip is not None:
            seen = {"views": gossip.views(), "deaths": gossip.deaths()}
        self._status.set("finished", round=commit.round, **seen, **commit.to_status())
        if gossip is not None:
            gossip.part(commit.round)
        self._linger()

    def _linger(self) -> None:
        """Stay a moment, so that a node that missed the last averaging can load the final state.

        For the primary there is no time limit: without it there is no final model. It stays for as long as a
        node may stand still, so that all hear that it has what it needs.
        """
        members, config = self._members, self._config
        self._state.supply.fetcher.close()  # nothing is read any more
        if not config.coordination.peers:
            return
        began, told = time.monotonic(), False
        least = _GOODBYE_SECONDS if config.is_primary else 0.0
        with suppress(Stopped):
            while True:
                view, waited = members.look(), time.monotonic() - began
                late = waited >= _LINGER_SECONDS
                primary = primary_to_serve(config, view)
                alone = members.present(view) == {config.node}
                if not primary:
                    remember_that_the_primary_has_it(config)
                    if late or (alone and waited >= least):
                        break
                elif late:
                    told = True
                    members.introduce(members.present(view))
                    self._status.set(
                        "finished", f"waits for the primary {primary} to take the finished model"
                    )
                members.say("finished")
                self._sleep(_UNWELL_SECONDS if late else _RETRY_SECONDS)
            if told:
                seen: dict[str, Any] = {"views": self._gossip.views()} if self._gossip is not None else {}
                self._status.set("finished", **seen)

    def _sleep(self, seconds: float) -> None:
        """Wait; Stopped as soon as this node is told to stop."""
        ends = time.monotonic() + seconds
        while not self._stopping():
            left = ends - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_SECONDS, left))
        raise Stopped
