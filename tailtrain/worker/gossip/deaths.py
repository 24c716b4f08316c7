"""When a node counts as dead, and whether all see the same: pure rules over what nodes answer.

The question is always the same (`states`): what does your agent hold of these nodes? The answer is one letter
for each of them, and how many members it holds alive in all. The two uses:

- **Death.** One observer may be wrong: its own link may be what failed, and a node that is cut off may see
  everybody else fail. So a node counts as dead only if this node's agent holds it failed, at least one other
  observer agrees, and no more of those who answer hold it alive. A node that gets no answer from anybody is
  isolated: it judges nobody (it knows that within 3 s, from its agent's doubt in itself). In a fleet of two
  nobody can confirm, so nobody is judged; the quorum then decides. A node that leaves in order says so
  itself, which needs no witness.
- **Views.** All nodes' views are equal if each holds exactly the same members alive.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from tailtrain.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tailtrain.worker.gossip.members import Status

OBSERVERS = 2
"""How many nodes have to hold another one failed before it counts as dead."""

_SEPARATOR = "\n"


class Held(StrEnum):
    """What an observer's agent holds of a node, as one letter of an answer."""

    ALIVE = "a"
    FAILED = "f"
    LEFT = "l"
    UNKNOWN = "u"


_OF_STATUS: dict[str, Held] = {
    "alive": Held.ALIVE,
    "leaving": Held.LEFT,
    "left": Held.LEFT,
    "failed": Held.FAILED,
    "none": Held.UNKNOWN,
}


def held(statuses: Mapping[str, Status], node: str) -> Held:
    """What an agent with these members holds of a node."""
    return _OF_STATUS[statuses[node]] if node in statuses else Held.UNKNOWN


def question(nodes: Iterable[str]) -> bytes:
    """The payload that asks about these nodes."""
    return _SEPARATOR.join(nodes).encode()


def batches(nodes: Sequence[str], most_bytes: int) -> list[list[str]]:
    """Nodes in groups whose questions fit into a payload."""
    groups: list[list[str]] = []
    size = most_bytes + 1
    for node in nodes:
        length = len(node.encode()) + 1
        if size + length > most_bytes:
            groups.append([])
            size = 0
        groups[-1].append(node)
        size += length
    return groups


def answer(asked: bytes, statuses: Mapping[str, Status]) -> bytes:
    """What a node answers: a letter for each node asked about, and how many it holds alive in all."""
    nodes = asked.decode(errors="replace").split(_SEPARATOR)
    letters = "".join(held(statuses, node) for node in nodes)
    alive = sum(status == "alive" for status in statuses.values())
    return f"{letters} {alive}".encode()


@dataclass(frozen=True)
class Answer:
    """What one observer holds: of each node asked about, and how many nodes alive in all."""

    held: Mapping[str, Held]
    alive: int


def read_answer(raw: bytes, nodes: Sequence[str], observer: str) -> Answer:
    """Check and read an observer's answer.

    Raises:
        PeerError: naming the observer.
    """
    letters, _, count = raw.decode(errors="replace").partition(" ")
    if len(letters) != len(nodes) or set(letters) - set(Held) or not (count.isascii() and count.isdigit()):
        raise PeerError("an observer's answer cannot be read", host=observer, found=repr(raw)[:80])
    return Answer({node: Held(letter) for node, letter in zip(nodes, letters, strict=True)}, int(count))


@dataclass(frozen=True)
class Verdict:
    """What this node concludes.

    Attributes:
        dead: nodes that count as dead.
        unconfirmed: nodes that only this node's agent holds failed, so far.
        isolated: nobody else answered: this node judges nobody.
    """

    dead: frozenset[str]
    unconfirmed: frozenset[str]
    isolated: bool


def judge(own: str, statuses: Mapping[str, Status], answers: Mapping[str, Answer]) -> Verdict:
    """Who counts as dead.

    Args:
        own: this node.
        statuses: what its agent holds.
        answers: the observers' answers; what a node says of itself, or this node's own, adds nothing.
    """
    failed = {node for node in statuses if node != own and held(statuses, node) is Held.FAILED}
    others = {observer: each for observer, each in answers.items() if observer != own}
    dead = set()
    for node in failed:
        said = Counter(each.held.get(node) for observer, each in others.items() if observer != node)
        agreeing = 1 + said[Held.FAILED]
        if agreeing >= OBSERVERS and agreeing >= said[Held.ALIVE]:
            dead.add(node)
    return Verdict(frozenset(dead), frozenset(failed - dead), isolated=not others)


@dataclass(frozen=True)
class Death:
    """A node that was found dead, or whose worker was.

    Attributes:
        node: its name.
        what: the whole node, or its worker alone: its agent lives and nobody answers for this run.
        at: when that was certain (unix seconds).
        seconds: since its last sign of life that was noticed here: an answer, or a change of its tags. None
            where none ever was.
    """

    node: str
    what: Literal["node", "worker"]
    at: float
    seconds: float | None


@dataclass(frozen=True)
class Views:
    """How the members' views compare.

    Attributes:
        live: whom this node holds alive, itself included.
        differing: the members that see it otherwise, and in what.
        silent: members held alive that did not answer.
    """

    live: tuple[str, ...]
    differing: Mapping[str, str]
    silent: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether every live member holds exactly the same members alive."""
        return not self.differing and not self.silent


def compare_views(own: str, statuses: Mapping[str, Status], answers: Mapping[str, Answer]) -> Views:
    """Compare this node's view with those of the others.

    Args:
        own: this node.
        statuses: what its agent holds.
        answers: what the others hold of all members that this node knows.
    """
    live = tuple(sorted(node for node in statuses if held(statuses, node) is Held.ALIVE))
    differing = {}
    for observer, each in sorted(answers.items()):
        if observer == own:
            continue
        theirs = {node for node, letter in each.held.items() if letter is Held.ALIVE}
        more = each.alive - len(theirs)
        parts = [f"not {node}" for node in live if node not in theirs]
        parts += [f"also {node}" for node in sorted(theirs - set(live))]
        parts += [f"{more} that are unknown here"] if more else []
        if parts:
            differing[observer] = ", ".join(parts)
    silent = tuple(node for node in live if node != own and node not in answers)
    return Views(live, differing, silent)
