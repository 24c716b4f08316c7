"""This node's watch over the fleet: who is alive, who died, and the same answers for whoever asks.

A thread looks at the local agent's members, and asks the others when it holds a node failed (`deaths` has the
rule). It does not wait for the agent's member events: those come 1 to 3 s late, because the agent gathers
them first (its coalesce period), while its list of members is up to date, and a look takes a millisecond.
Nobody is judged while views settle: for some seconds after this node was cut off, or after another came back.
The agent may restart at any time: the watch connects again, says this node's tags again (an agent forgets
them), and judges nobody meanwhile.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from tailtrain.errors import WorkerError
from tailtrain.worker.gossip import deaths
from tailtrain.worker.gossip.agent import Agent, Event
from tailtrain.worker.gossip.asking import HERE, STATES, ask_states, ask_who_is_here
from tailtrain.worker.gossip.rpc import AgentGoneError
from tailtrain.worker.gossip.sight import Sight, alive
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from tailtrain.worker.gossip.deaths import Views
    from tailtrain.worker.gossip.members import Member, Status, Tags

_LOOK_SECONDS = 0.25
_LOOK_SHARE = 20.0  # looking takes at most a twentieth of the time, however many members there are
_CONNECT_AGAIN_SECONDS = 0.5
_VIEW_TRIES = 4
# When a partition heals, each side still spreads the deaths that it found, until those nodes deny them.
_SETTLE_SECONDS = 3.0
# Of the agent's own score: a node with a link that works has 0, or 1 for a moment.
_TROUBLE = 2


class Watch:
    """Follows the local agent until it is closed.

    Args:
        address: host and port of the agent's RPC listener.
        key: what its `rpc_auth` asks for.

    Attributes:
        deaths: all that were found, in order.
    """

    def __init__(self, address: tuple[str, int], key: str | None = None) -> None:
        self._address, self._key = address, key
        self._agent: Agent | None = None
        self._sight = Sight()
        self._tags: Tags | None = None
        self._word: str | None = None
        self._name = ""  # this node's, as its agent says
        self.deaths: tuple[deaths.Death, ...] = ()
        self._heard: dict[str, float] = {}  # the last sign of life, in unix seconds
        self._well_at = time.monotonic()
        self._changed = threading.Condition()
        self._wake, self._closing = threading.Event(), threading.Event()  # wake: look now
        self._settled_at = 0.0
        self._thread = threading.Thread(target=self._run, name="gossip-watch", daemon=True)
        self._thread.start()

    @property
    def sight(self) -> Sight:
        """What is seen now."""
        return self._sight

    def wait(self, seconds: float, since: Sight) -> Sight:
        """Wait until something is not as in `since`, at most so long; what is seen then."""
        with self._changed:
            self._changed.wait_for(lambda: self._sight != since or self._closing.is_set(), timeout=seconds)
        return self._sight

    def wait_until_connected(self, seconds: float) -> None:
        """Wait until the agent answers, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._sight.connected, timeout=seconds)

    def say(self, tags: Tags) -> None:
        """Tell all others; if the agent is away, as soon as it is back.

        An agent that was starved of its processor may say that it could not spread them in time; it has them
        all the same, and others hear them with its next ones.
        """
        self._tags = tags
        agent = self._agent
        if agent is not None:
            try:
                agent.set_tags(tags.to_serf())
            except AgentGoneError:
                self._wake.set()
            except WorkerError as error:
                log(f"the local agent: {error}")

    def answer_with(self, word: str | None) -> None:
        """What to answer whoever asks what this node's worker does; nothing where that is None."""
        self._word = word

    def who_is_here(self, nodes: Collection[str], seconds: float) -> dict[str, str]:
        """Ask these nodes' workers what they do; the answers that came in time, none if the agent is away."""
        agent = self._agent
        if agent is None:
            return {}
        try:
            answers = ask_who_is_here(agent, nodes, seconds)
        except AgentGoneError:
            return {}
        self._hear(answers)
        return answers

    def beat_age(self) -> float:
        """Seconds since the agent was sure of its own link, or another node was heard; 0 while it is away."""
        return time.monotonic() - self._well_at if self._sight.connected else 0.0

    def round_trips(self) -> dict[tuple[str, str], float]:
        """Estimated round trips in seconds between all live members, by pair in alphabetical order.

        Raises:
            AgentGoneError: the agent is away.
        """
        return self._connected().round_trips(self._sight.live)

    def views(self) -> Views:
        """Ask all members whom they hold alive, and compare; again where one differs or is silent.

        Questions and answers are datagrams, which may be lost, and a node that has just joined leaves out
        questions that it takes for old ones.

        Raises:
            AgentGoneError: the agent is away.
        """
        agent = self._connected()
        for tries_left in reversed(range(_VIEW_TRIES)):
            members = agent.members()
            answers = ask_states(agent, sorted(members), alive(members))
            views = deaths.compare_views(agent.name, _statuses(members), answers)
            if views.equal or not tries_left:
                break
        return views

    def close(self) -> None:
        """Stop watching; the agent stays."""
        self._closing.set()
        self._wake.set()
        self._thread.join()

    def _connected(self) -> Agent:
        agent = self._agent
        if agent is None:
            raise AgentGoneError("the local Serf agent does not answer", field="{}:{}".format(*self._address))
        return agent

    def _run(self) -> None:
        told = False
        while not self._closing.is_set():
            try:
                self._agent = Agent(self._address, self._key, closed=self._wake.set)
                self._name = self._agent.name
                told = False
                self._follow(self._agent)
            except WorkerError as error:
                if not told and not self._closing.is_set():
                    log(f"gossip: {error}")
                    told = True
            finally:
                if self._agent is not None:
                    self._agent.close()
                    self._agent = None
            self._see(connected=False)
            self._closing.wait(_CONNECT_AGAIN_SECONDS)

    def _follow(self, agent: Agent) -> None:
        """Keep what is seen up to date, until the agent goes away or the watch is closed."""
        self._see(members=agent.members())
        agent.events(lambda event: self._answer(agent, event), f"query:{STATES},query:{HERE}")
        if self._tags is not None:
            agent.set_tags(self._tags.to_serf())
        while not self._closing.is_set():
            self._wake.clear()
            began = time.monotonic()
            members = agent.members()
            took = time.monotonic() - began
            self._see(members=members, connected=True, **self._verdict(agent, members))
            self._wake.wait(max(_LOOK_SECONDS, _LOOK_SHARE * took))

    def _answer(self, agent: Agent, event: Event) -> None:
        """Answer another node's question, in the reading thread."""
        if event.name == STATES:
            agent.respond(event.number, deaths.answer(event.payload, _statuses(self._sight.members)))
            return
        if (asking := event.payload.decode(errors="replace")) != agent.name:
            self._hear({asking})
        if self._word is not None:
            agent.respond(event.number, self._word.encode())

    def _verdict(self, agent: Agent, members: Mapping[str, Member]) -> dict[str, Any]:
        """Who is dead; what was confirmed once stays so until the node is back."""
        failed = {node for node, member in members.items() if member.status == "failed"}
        known = self._sight.dead & failed
        if (self._sight.dead | self._sight.unconfirmed) - failed:
            self._settled_at = time.monotonic() + _SETTLE_SECONDS
        open_questions = sorted(failed - known)
        troubled = agent.trouble() >= _TROUBLE
        if not troubled:
            self._well_at = time.monotonic()
        if not open_questions and not troubled:
            return {"dead": known, "unconfirmed": frozenset(), "isolated": False}
        # Told before the others are asked, so that who asks meanwhile gets this node's word.
        self._see(members=members, dead=known, unconfirmed=frozenset(open_questions))
        asked = open_questions or [agent.name]
        answers = ask_states(agent, asked, alive(members))
        self._hear(answers)
        verdict = deaths.judge(agent.name, _statuses(members), answers)
        isolated = verdict.isolated and len(members) > 1
        if isolated:
            self._settled_at = time.monotonic() + _SETTLE_SECONDS
            if not self._sight.isolated:
                log("gossip: nobody answers; this node is cut off and judges nobody")
        settled = time.monotonic() >= self._settled_at
        confirmed = verdict.dead - known if settled else frozenset()
        for node in sorted(confirmed):
            self.note_death(node)
        return {
            "dead": known | confirmed,
            "unconfirmed": frozenset(open_questions) - confirmed,
            "isolated": isolated,
        }

    def _hear(self, nodes: Iterable[str]) -> None:
        """These nodes gave a sign of life."""
        others = dict.fromkeys(set(nodes) - {self._name}, time.time())
        self._heard |= others
        if others:
            self._well_at = time.monotonic()

    def note_death(self, node: str, what: Literal["node", "worker"] = "node") -> None:
        """A node was found dead, or its worker."""
        now = time.time()
        since = now - self._heard[node] if node in self._heard else None
        self.deaths = (*self.deaths, deaths.Death(node, what, now, since))
        when = "" if since is None else f", {since:.1f} s after its last sign of life"
        which = f"{node} is" if what == "node" else f"the worker of {node} is"
        how = f": {deaths.OBSERVERS} or more observers agree" if what == "node" else ": it does not answer"
        log(f"gossip: {which} dead{when}{how}")

    def _see(self, **fields: Any) -> None:
        before = self._sight
        for name, member in fields.get("members", {}).items():
            known = before.members.get(name)
            if member.status == "alive" and (known is None or known.tags != member.tags):
                self._heard[name] = time.time()
        values = {name: getattr(before, name) for name in Sight.__dataclass_fields__}
        sight = Sight(**{**values, **fields})
        if sight != before:
            with self._changed:
                self._sight = sight
                self._changed.notify_all()


def _statuses(members: Mapping[str, Member]) -> dict[str, Status]:
    return {name: member.status for name, member in members.items()}


def read_rpc(config: Path) -> tuple[tuple[str, int], str | None]:
    """Where the agent with this configuration file listens for RPC, and the key that it asks for.

    Raises:
        WorkerError: the file cannot be read.
    """
    try:
        said = json.loads(config.read_bytes())
        host, _, port = str(said["rpc_addr"]).rpartition(":")
        return (host, int(port)), said.get("rpc_auth")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkerError(
            "the Serf agent's configuration cannot be read",
            field=str(config),
            found=str(error),
            fix="Deploy again",
        ) from error
