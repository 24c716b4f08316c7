"""Joining a run: at its start, late, or after having been away.

The primary starts the clock when all nodes are ready, or some seconds after enough of them are. Whoever comes
later loads the state from the node that is furthest on, and joins its round if there is time left in it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.errors import PeerError
from tailtrain.worker.announcements import READY_SECONDS, Announcement, View
from tailtrain.worker.schedule import Round
from tailtrain.worker.status import StatusFile, log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.membership import Membership
    from tailtrain.worker.node_state import NodeState
    from tailtrain.worker.peers.swarm import Swarm

_PRIMARY_HAS_IT = "primary-has-final"
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_SETTLE_PART = 1 / 6  # of the start time-out: how long the clock waits for the rest once enough are there
_MARGIN_SECONDS = 3.0  # with less time left in a round, a node joins the next


class FinishedElsewhereError(Exception):
    """The others finished the run without this node, and the final model has been delivered here."""


def has_final_model(config: WorkerConfig) -> bool:
    """Whether the final model was made or delivered here."""
    return (config.run_dir / "final" / "manifest.json").is_file()


def remember_that_the_primary_has_it(config: WorkerConfig) -> None:
    """A node that starts after the others are gone must not wait for a primary that needs nothing."""
    with suppress(OSError):
        (config.run_dir / _PRIMARY_HAS_IT).touch()


def primary_to_serve(config: WorkerConfig, view: View) -> str:
    """The primary, while it may lack the finished state that this node can serve; empty where nobody does.

    Only the primary makes the final model, and it may have been away when the others reached the target. That
    it says "finished", or did so before, is the sign that it has the state on disk. Where it alone serves
    states there is nothing to serve.

    Args:
        config: of a node that has the finished state.
        view: what is announced.
    """
    remembered = (config.run_dir / _PRIMARY_HAS_IT).exists()
    if config.is_primary or config.centralized or remembered or has_final_model(config):
        return ""
    primary = config.primary
    return "" if primary in view and view[primary].phase == "finished" else primary


class Joiner:
    """Finds the present round, and loads the state that it began from.

    Args:
        config: this node's configuration.
        state: what it has committed.
        status: where it says what it does.
        members: the others.
        swarm: the connection to them; None where it is alone in the fleet.
        sleep: waits some seconds, and raises if the node is told to stop.
    """

    def __init__(
        self,
        config: WorkerConfig,
        state: NodeState,
        status: StatusFile,
        members: Membership,
        swarm: Swarm | None,
        sleep: Callable[[float], None],
    ) -> None:
        self._config, self._state, self._status = config, state, status
        self._members, self._swarm, self._sleep = members, swarm, sleep

    def join(self) -> Round | None:
        """The present round; None if the run has finished, with the final state loaded.

        Raises:
            FinishedElsewhereError: the final model was delivered while this node waited.
        """
        members = self._members
        since = members.now()
        enough_since: float | None = None
        compared = False
        while True:
            self._sleep(0.0)
            view = members.look()
            leader = members.leader(view)
            if leader is not None:
                if not compared:
                    members.compare_clocks(view)
                    compared = True
                joined = self._follow(leader)
                if joined is not None or self._state.commit.finished:
                    return joined
                continue
            if has_final_model(self._config):
                raise FinishedElsewhereError
            present = members.present(view)
            members.say("ready")
            members.introduce(present)
            now = members.now()
            if not members.suffice(present):
                enough_since = None
            elif enough_since is None:
                enough_since = now
            if self._config.is_primary and enough_since is not None and not self._catch_up(view):
                complete = len(present) == len(self._config.nodes)
                patience = self._config.training.start_timeout_seconds * _SETTLE_PART
                if complete or now - enough_since > patience:
                    return self._next(now)
            self._say_waiting(present, now - since)
            self._sleep(_LOOK_SECONDS)

    def _next(self, now: float) -> Round:
        """A round with a new clock, after this node's last commit."""
        return Round(self._state.commit.round + 1, now + self._config.training.round_seconds)

    def _follow(self, leader: Announcement) -> Round | None:
        """Join the leader's round if there is time left in it; load the state first if it is not here."""
        commit = self._state.commit
        same = (commit.round, commit.digest) == (leader.committed, leader.digest)
        if leader.phase == "finished":
            if same:
                self._state.finish()
            else:
                self._load_from(leader)
            return None
        if not self._config.centralized and commit.round >= leader.round:
            return self._next(self._members.now())  # this node is ahead of all: the others load from it
        left = leader.ends - self._members.now()
        if leader.phase != "paused" and left < min(_MARGIN_SECONDS, self._config.training.round_seconds / 2):
            self._wait(f"round {leader.round} is being averaged; joins the next")
            return None
        if same or not self._members.serves(leader.node):
            return Round(leader.round, leader.ends)
        self._load_from(leader)
        return None

    def _load_from(self, leader: Announcement) -> None:
        """Take over the leader's committed state."""
        assert self._swarm is not None  # noqa: S101 - there is no leader without peers
        self._status.set("waiting", f"loads the state after round {leader.committed} from {leader.node}")
        try:
            self._state.adopt(leader.node, self._swarm.download(leader.node))
        except PeerError as error:
            self._members.avoid(leader.node)
            self._wait(f"cannot load the state: {error}")
            return
        log(f"has the state after round {self._state.commit.round} from {leader.node}")

    def _catch_up(self, view: View) -> bool:
        """Before the primary starts the clock: load from a waiting node that has committed more."""
        available, now = self._members.available(), self._members.now()
        ahead = [
            said
            for said in view.values()
            if said.node in available
            and now - said.sent < READY_SECONDS
            and said.committed > self._state.commit.round
        ]
        if not ahead:
            return False
        self._load_from(max(ahead, key=lambda said: (said.committed, said.node)))
        return True

    def _say_waiting(self, present: set[str], seconds: float) -> None:
        message = self._members.waits_for(present)
        limit = self._config.training.start_timeout_seconds
        if seconds > limit:
            message += f"; not there within {limit:g} s"
        self._status.set("waiting", message, **self._state.commit.to_status())

    def _wait(self, message: str) -> None:
        self._status.set("waiting", message)
        self._sleep(_RETRY_SECONDS)
