"""How a node comes to an averaging: of all, tried until it is done, or of a pair, tried once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tailtrain.errors import LostNodeError, PeerError
from tailtrain.worker.exchange import Averaged
from tailtrain.worker.gossip.pairing import group_bits
from tailtrain.worker.status import log
from tailtrain.worker.weights import is_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tailtrain.worker.announcements import View
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.ledger import Contribution
    from tailtrain.worker.membership import Membership
    from tailtrain.worker.node_state import NodeState
    from tailtrain.worker.peers.attempt import Attempt
    from tailtrain.worker.peers.swarm import Swarm
    from tailtrain.worker.schedule import Round
    from tailtrain.worker.status import StatusFile
    from tailtrain.worker.uncommitted import Uncommitted

_POLL_SECONDS = 0.25
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_SLOW_SECONDS = 5.0  # an averaging that takes longer looks around for what is wrong


@dataclass(frozen=True)
class Outcome:
    """An averaging that came about.

    Attributes:
        averaged: the mean and its members.
        seconds: that it took.
        view: who was seen.
    """

    averaged: Averaged
    seconds: float
    view: View


class Averaging:
    """This node's averagings.

    Args:
        config: this node's configuration.
        state: what it has committed.
        status: where it says what it does.
        members: the others.
        swarm: the connection to them; None where it is alone in the fleet.
        uncommitted: what it brings.
        sleep: waits some seconds, and raises if the node is told to stop.
    """

    def __init__(
        self,
        config: WorkerConfig,
        state: NodeState,
        status: StatusFile,
        members: Membership,
        swarm: Swarm | None,
        uncommitted: Uncommitted,
        sleep: Callable[[float], None],
    ) -> None:
        self._config, self._state, self._status = config, state, status
        self._members, self._swarm, self._uncommitted = members, swarm, uncommitted
        self._sleep = sleep
        self.committed_at = 0.0

    def of_all(self, current: Round) -> Outcome | None:
        """Average with all who take part; None if they went on without this node.

        Raises:
            LostNodeError: a node is lost in a run that tolerates none.
        """
        self._status.set("averaging", **self._state.commit.to_status())
        vector = self._vector(current.number)
        members = self._members
        began = members.now()
        while True:
            self._sleep(0.0)
            attempt_began = members.now()
            view = members.look()
            if members.overtaken(view, current.number, self.committed_at):
                return None
            expected = members.in_round(view, current.number)
            own = self._uncommitted.contribution(current.number, attempt_began)
            averaged: Averaged | Literal["overtaken"] | None = None
            if len(expected) == 1 and members.suffice(expected):
                averaged = Averaged(vector, {own.node: own})
            elif members.suffice(expected):
                averaged = self._attempt(current, vector, own, expected, began)
            if averaged == "overtaken":
                return None
            if isinstance(averaged, Averaged):
                return Outcome(averaged, members.now() - attempt_began, view)
            if members.too_late(began):
                raise lost(set(self._config.nodes) - expected)
            self._pause(view, current)
            self._sleep(_RETRY_SECONDS)

    def of_pair(self, number: int, group: tuple[str, ...]) -> Outcome | None:
        """Average with a partner, once; None if it does not come: its work and this node's are kept.

        Args:
            number: the round.
            group: the two of them.
        """
        assert self._swarm is not None  # noqa: S101 - there is no partner without peers
        self._status.set(
            "averaging", f"round {number} with {self._partner(group)}", **self._state.commit.to_status()
        )
        vector = self._vector(number)
        began = self._members.now()
        own = self._uncommitted.contribution(number, began)
        attempt = self._swarm.average(vector, own, len(group), bits=group_bits(group, number))
        try:
            averaged = self._wait(attempt, set(group), lambda: False)
        except PeerError as error:
            log(f"round {number}: {error}; what was trained is brought to the next averaging")
            return None
        finally:
            attempt.cancel()
        if not isinstance(averaged, Averaged):
            return None
        return Outcome(averaged, self._members.now() - began, {})

    def _partner(self, group: tuple[str, ...]) -> str:
        return ", ".join(node for node in group if node != self._config.node)

    def _vector(self, number: int) -> Tensor:
        """The weights to bring; those of the last commit, and no work, where training made them infinite."""
        vector = self._state.provisional()
        if vector is None:
            log(f"round {number}: this node's weights are not finite; its work is dropped")
            self._state.drop_work()
            self._uncommitted.clear()
            vector = self._state.commit.weights
        return vector

    def _attempt(
        self, current: Round, vector: Tensor, own: Contribution, expected: set[str], began: float
    ) -> Averaged | Literal["overtaken"] | None:
        """One try, watched: the mean, or None to try again."""
        assert self._swarm is not None  # noqa: S101 - a node that is alone never gets here
        members = self._members
        attempt = self._swarm.average(vector, own, len(expected))
        looked = members.now()
        overtaken = False

        def give_up() -> bool:
            nonlocal looked, overtaken
            now = members.now()
            if now - began > _SLOW_SECONDS and now - looked > _LOOK_SECONDS:
                view = members.look()
                overtaken = members.overtaken(view, current.number, self.committed_at)
                if not overtaken:
                    self._pause(view, current)
                looked = members.now()
            return overtaken or members.too_late(began)

        try:
            averaged = self._wait(attempt, expected, give_up)
        except PeerError as error:
            log(f"round {current.number}: {error}; trying again")
            return None
        finally:
            attempt.cancel()
        return "overtaken" if overtaken else averaged

    def _wait(self, attempt: Attempt, expected: set[str], give_up: Callable[[], bool]) -> Averaged | None:
        """The mean; None if it is not finite, a member died meanwhile, or `give_up` says so.

        Raises:
            PeerError: it failed.
        """
        gossip = self._members.gossip
        dead = gossip.dead if gossip is not None else frozenset()
        while True:
            self._sleep(0.0)
            averaged = attempt.wait(_POLL_SECONDS)
            if averaged is not None:
                if is_finite(averaged.mean):
                    return averaged
                log("the mean is not finite; not committed")
                return None
            if gossip is not None and (died := (gossip.dead - dead) & expected):
                log(f"{', '.join(sorted(died))} died while averaging; goes on without")
                return None
            if give_up():
                return None

    def _pause(self, view: View, current: Round) -> None:
        """Say that this node waits for others, and whom it misses."""
        members = self._members
        present = members.in_round(view, current.number)
        members.introduce(present)
        # Whoever joins now need not wait for the end of the training that this node is done with.
        members.say("paused", current.number, min(current.ends, members.now()))
        enough = members.suffice(present)
        state: Literal["averaging", "paused"] = "averaging" if enough else "paused"
        self._status.set(state, members.waits_for(present), **self._state.commit.to_status())


def lost(nodes: set[str]) -> LostNodeError:
    """That a node was lost in a run that tolerates none."""
    return LostNodeError(
        "a node was lost and this run tolerates no loss",
        host=", ".join(sorted(nodes)),
        fix="Bring it back and resume: the run goes on from its last round",
    )
