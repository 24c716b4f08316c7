"""Whose worker is there: a roll call before an averaging, and steady beats.

A roll call goes out shortly before a round's training ends, so that nobody waits for its answers. All nodes
call at about the same time and hear the same, so all leave out the same nodes of the pairs that they form.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tailtrain.worker.gossip.health import BEAT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from tailtrain.worker.gossip.watch import Watch

Doing = Literal["pairs", "waits", "done"]
"""A worker averages in pairs, or waits for the next averaging of all, or is done with the run."""

_CALL_SECONDS = 2.5  # time for two questions; a node that is starved of its processor answers late
_AHEAD_SECONDS = 3.0
_AHEAD_SHARE = 0.4  # of what is left of a short round
_BEAT_WAIT_SECONDS = 1.0
_BEATS_DEAD = 4


@dataclass(frozen=True)
class Word:
    """What a worker answers.

    Attributes:
        run: the run that it works on.
        round: the round of the next averaging of all.
        doing: what it does until then.
    """

    run: str
    round: int
    doing: Doing

    def __str__(self) -> str:
        """As it is sent."""
        return f"{self.run} {self.round} {self.doing}"


class RollCall:
    """Calls some nodes in the background.

    Args:
        watch: through which it is called.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._answers: dict[str, str] = {}
        self._timer: threading.Timer | None = None

    def begin(self, nodes: Collection[str], ends_in: float) -> None:
        """Call these nodes in time before a round ends.

        Args:
            nodes: whom.
            ends_in: seconds until the round's training ends.
        """
        self._answers = {}
        ahead = min(_AHEAD_SECONDS, _AHEAD_SHARE * ends_in)
        self._timer = threading.Timer(max(0.0, ends_in - ahead), self._call, [frozenset(nodes)])
        self._timer.daemon = True
        self._timer.start()

    def answered(self, word: Word) -> frozenset[str]:
        """Who gave this answer; waits for the end of the call."""
        if self._timer is not None:
            self._timer.join()
        return frozenset(node for node, said in self._answers.items() if said == str(word))

    def close(self) -> None:
        """Call nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _call(self, nodes: frozenset[str]) -> None:
        self._answers = self._watch.who_is_here(nodes, _CALL_SECONDS)


class Beats:
    """Asks all live nodes every `BEAT_SECONDS`, so that it is known how long ago a dead one lived.

    One node of the fleet does that: as many questions as nodes would be as many answers as nodes squared.
    A worker that answered before and does not four times in a row is noted as dead, as long as its node says
    that it is at work on the run; who is stopped in order takes that back.

    Args:
        watch: through which it is asked.
        run: the run.
    """

    def __init__(self, watch: Watch, run: str) -> None:
        self._watch, self._run_id = watch, run
        self._missed: dict[str, int] = {}
        self._answering: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gossip-beats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask nobody any more."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(BEAT_SECONDS):
            members = self._watch.sight.members
            at_work = {
                node
                for node, member in members.items()
                if member.status == "alive" and member.tags.get("run") == self._run_id
            }
            answers = self._watch.who_is_here(at_work, _BEAT_WAIT_SECONDS)
            self._answering |= set(answers)
            asked = at_work & self._answering
            missed = asked - set(answers) if self._watch.sight.connected else set()
            self._missed = {node: self._missed.get(node, 0) + 1 for node in missed}
            for node in sorted(missed):
                if self._missed[node] == _BEATS_DEAD:
                    self._watch.note_death(node, "worker")
                    self._answering.discard(node)
