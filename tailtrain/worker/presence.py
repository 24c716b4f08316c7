"""The gossip side of a worker: what Serf says of the nodes of its run, and what it says of itself.

A node measures its own health once a round, right after averaging (`gossip.health` has the formula): how long
ago its agent was sure of its own link, or heard of another node; its tokens per second against its own best;
free memory and disk; and its path. Whether that is direct only Tailscale knows, which the worker's account
may not ask: it counts as relayed where the median of Serf's estimated round trips is longer than any direct
path on earth.

The local agent may be away, now or for good: then nobody counts as dead, there are no pairs, and who is there
follows from announcements alone, as without gossip. Training goes on, and the status says so.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from typing import TYPE_CHECKING, Any

from tailtrain.errors import WorkerError
from tailtrain.worker.gossip import pairing
from tailtrain.worker.gossip.health import Speed, Vitals, health_of, takes_part, work_shares
from tailtrain.worker.gossip.members import Tags
from tailtrain.worker.gossip.roll import Beats, Doing, RollCall, Word
from tailtrain.worker.gossip.roster import Roster, roster
from tailtrain.worker.gossip.vitals import checkpoints_that_fit, memory_free
from tailtrain.worker.gossip.watch import Watch, read_rpc
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tailtrain.worker.announcements import View
    from tailtrain.worker.config import WorkerConfig

# Half around the earth and back takes light in fibre 0.2 s: what takes longer goes over somebody else.
_RELAYED_SECONDS = 0.3
_VECTORS = 4  # in a checkpoint: weights, two moments, outer momentum
_FLOAT_BYTES = 4
_NEWS_SECONDS = 1.0  # clocks agree better than this
_CONNECT_SECONDS = 3.0
_GOODBYE_SECONDS = 8.0
_ASK_SECONDS = 1.0
_NO_ROUND = -1


class Presence:
    """This node among those that its agent knows.

    Args:
        config: this node's configuration.
        watch: on the local agent.
        size: how many weights the model has.

    Attributes:
        health: this node's, as measured last.
    """

    def __init__(self, config: WorkerConfig, watch: Watch, size: int) -> None:
        self._config, self._watch = config, watch
        watch.wait_until_connected(_CONNECT_SECONDS)
        self._checkpoint_bytes = size * _FLOAT_BYTES * _VECTORS
        self._roll = RollCall(watch)
        self._beats = Beats(watch, config.run_id) if config.is_primary else None
        self._word: Word | None = None
        self._told_away = False
        self._deaths_told = 0
        self._noted = self._roster()
        self.health = 1.0
        self.answer(_NO_ROUND, "waits")

    @property
    def connected(self) -> bool:
        """Whether the local agent answers; said once each time that it goes away."""
        connected = self._watch.sight.connected
        if not connected and not self._told_away:
            log("gossip: the local agent is away; who is there follows from announcements, without pairs")
        self._told_away = not connected
        return connected

    @property
    def cut_off(self) -> bool:
        """Whether nobody answers this node."""
        return self._watch.sight.connected and self._watch.sight.isolated

    @property
    def dead(self) -> frozenset[str]:
        """Nodes that two observers hold failed."""
        sight = self._watch.sight
        return sight.dead if sight.connected else frozenset()

    def gone(self, view: View, offset: float) -> set[str]:
        """Whom not to wait for: dead, and silent since, or not healthy enough to take part.

        Args:
            view: what is announced; a worker whose agent alone died still says something.
            offset: seconds to add to this node's clock to have that of announcements.
        """
        if not self._watch.sight.connected:
            return set()
        since = {
            death.node: death.at + offset + _NEWS_SECONDS
            for death in self._watch.deaths
            if death.what == "node"
        }
        silent = {node for node in self.dead if node not in view or view[node].sent < since.get(node, 0.0)}
        return silent | set(self._roster().unhealthy)

    def here(self) -> frozenset[str]:
        """Nodes that are alive, well and at work on this run, this one included; all while nobody knows."""
        if not self._watch.sight.connected:
            return frozenset(self._config.nodes)
        return frozenset(self._roster().participants) | {self._config.node}

    def why(self) -> str:
        """In plain words, what keeps nodes away, as far as gossip knows; empty where nothing does."""
        if not self._watch.sight.connected:
            return "the local agent is away"
        parts = [f"{node} is dead" for node in sorted(self.dead & set(self._config.nodes))]
        unhealthy = sorted(self._roster().unhealthy.items())
        return "; ".join(parts + [f"{node} has a health of {health:.2f}" for node, health in unhealthy])

    def measure(self, speed: Speed, number: int) -> None:
        """Measure this node's health, and tell all others what it is and does.

        Args:
            speed: its tokens per second.
            number: the round that it works on.
        """
        vitals = Vitals(
            beat_age_seconds=self._watch.beat_age(),
            speed=speed.of_best,
            memory_free=memory_free(),
            disk_checkpoints=checkpoints_that_fit(self._config.state_dir, self._checkpoint_bytes),
            path="relayed" if self._round_trip() > _RELAYED_SECONDS else "direct",
        )
        self.health = health_of(vitals)
        self._watch.say(self._tags(speed, number))
        if not takes_part(self.health):
            said = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(vitals).items())
            log(f"this node's health is {self.health:.2f}: {said}")

    @property
    def well(self) -> bool:
        """Whether this node is healthy enough to take part."""
        return takes_part(self.health)

    def answer(self, number: int, doing: Doing) -> None:
        """What to say to whoever asks: on which averaging of all this node works, and what it does."""
        self._word = Word(self._config.run_id, number, doing)
        self._watch.answer_with(str(self._word))

    def call_roll(self, nodes: Collection[str], ends_in: float) -> None:
        """Ask these nodes who is there, shortly before a round's training ends."""
        if self.connected:
            self._roll.begin(set(nodes) - {self._config.node}, ends_in)

    def partners(self, members: Collection[str], number: int) -> tuple[str, ...]:
        """With whom this node averages in a round of pairs, itself included.

        Args:
            members: of the last averaging of all.
            number: the round.
        """
        if self._word is None or not self.connected:
            return (self._config.node,)
        here = set(members) & set(self._roster().participants) & self._roll.answered(self._word)
        found = pairing.groups(here | {self._config.node}, self._config.run_id, number, all_each=0)
        return pairing.group_of(self._config.node, found)

    def note(self) -> None:
        """Note what all say of themselves while they train: it is said anew after each averaging."""
        self._noted = self._roster()

    def shares(self, speeds: Mapping[str, float]) -> dict[str, tuple[float, float]]:
        """Health, and due share of the work, of each of these nodes in the round that was noted last.

        Args:
            speeds: tokens per second in that round, of those that had said nothing of it yet.
        """
        found = self._noted
        said = {node: found.speeds.get(node, 0.0) or speed for node, speed in speeds.items()}
        healths = {node: found.healths.get(node, found.unhealthy.get(node, 1.0)) for node in speeds}
        shares = work_shares(said, healths)
        return {node: (round(healths[node], 3), round(shares[node], 4)) for node in speeds}

    def deaths(self) -> list[dict[str, Any]]:
        """All deaths that were found, for reading."""
        return [
            {
                "node": death.node,
                "what": death.what,
                "at_unix": round(death.at, 3),
                "seconds": None if death.seconds is None else round(death.seconds, 2),
            }
            for death in self._watch.deaths
        ]

    def new_deaths(self) -> list[dict[str, Any]]:
        """Those that were not told yet."""
        deaths = self.deaths()
        told, self._deaths_told = self._deaths_told, len(deaths)
        return deaths[told:]

    def views(self) -> dict[str, Any]:
        """At the end of a run: whom all live members hold alive, and whether all hold the same."""
        try:
            views = self._watch.views()
        except WorkerError:
            return {"live": [], "equal": False, "differing": {}, "silent": [self._config.node]}
        return {
            "live": list(views.live),
            "equal": views.equal,
            "differing": dict(views.differing),
            "silent": list(views.silent),
        }

    def part(self, number: int) -> None:
        """Stay until the others are done with the run too: they may still ask what this node sees."""
        self.answer(number, "done")
        ends = time.monotonic() + _GOODBYE_SECONDS
        missed = dict.fromkeys(self.here() - {self._config.node}, 0)
        while missed and self.connected and time.monotonic() < ends:
            answers = self._watch.who_is_here(missed, _ASK_SECONDS)
            for node in list(missed):
                missed[node] += node not in answers
                if answers.get(node) == str(self._word) or missed[node] > 1:
                    del missed[node]

    def close(self) -> None:
        """Stop watching; the agent stays, and says from now on that no run is worked on."""
        self._watch.say(dataclasses.replace(self._tags(Speed(), -1), run=""))
        self._roll.close()
        if self._beats is not None:
            self._beats.close()
        self._watch.close()

    def _tags(self, speed: Speed, number: int) -> Tags:
        config = self._config
        return Tags(
            role="primary" if config.is_primary else "compute",
            cores=max(1, math.ceil(config.usable_cores)),
            gpu=config.device == "cuda",
            run=config.run_id,
            round=number,
            tokens_per_second=speed.smoothed,
            health=round(self.health, 3),
        )

    def _roster(self) -> Roster:
        sight = self._watch.sight
        return roster(sight.members, sight.live, self._config.nodes, self._config.run_id)

    def _round_trip(self) -> float:
        """The median of the estimated round trips to the others, in seconds; 0 while none is known."""
        try:
            found: Mapping[tuple[str, str], float] = self._watch.round_trips()
        except WorkerError:
            return 0.0
        own = [seconds for pair, seconds in found.items() if self._config.node in pair]
        return statistics.median(own) if own else 0.0


def open_presence(config: WorkerConfig, size: int) -> Presence | None:
    """What gossip says, where the run has gossip.

    Raises:
        WorkerError: the agent's configuration cannot be read.
    """
    if config.coordination.gossip is None:
        return None
    return Presence(config, Watch(*read_rpc(config.coordination.gossip)), size)
