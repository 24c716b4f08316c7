"""Who has trained what, and the messages that nodes send with each averaging.

A node's entry is its own claim: what it had committed before, plus what it brings to this averaging. Others
overwrite, never add: a node that died in an averaging and went back to its last checkpoint corrects its entry
the next time it takes part, so tokens are neither lost nor counted twice.

Everything here comes from the network or goes to it, as msgpack: shape, ranges and names are checked before a
value is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import PeerError
from tailtrain.worker.reading.reading_progress import Progress, progress_from_json, progress_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tailtrain.worker.reading.shards import Shards

PROTOCOL = 4
_DIGEST_DIGITS = 64
_MOST = 1 << 53  # beyond this a double no longer counts exactly


@dataclass(frozen=True)
class Entry:
    """Committed work of one node: tokens trained, records completed, averagings it took part in."""

    tokens: int = 0
    records: int = 0
    rounds: int = 0

    def to_list(self) -> list[int]:
        """As sent and stored."""
        return [self.tokens, self.records, self.rounds]

    @classmethod
    def from_list(cls, raw: Any, who: str) -> Entry:
        """Check and read; PeerError if it is not three whole numbers."""
        match raw:
            case [int(), int(), int()] if all(type(n) is int and 0 <= n <= _MOST for n in raw):
                return cls(*raw)
        raise PeerError("a ledger entry is not three whole numbers", host=who, found=_short(raw))


Ledger = dict[str, Entry]


def ledger_to_json(ledger: Mapping[str, Entry]) -> dict[str, list[int]]:
    """As sent and stored."""
    return {node: entry.to_list() for node, entry in sorted(ledger.items())}


def ledger_from_json(raw: Any, known: Iterable[str], who: str) -> Ledger:
    """Check and read a ledger.

    Nodes that this configuration does not know keep their entries: they trained before the fleet changed.

    Raises:
        PeerError: it is not a ledger, or names far more nodes than the fleet has.
    """
    limit = 4 * len(set(known)) + 64
    if not isinstance(raw, dict) or len(raw) > limit or not all(isinstance(node, str) for node in raw):
        raise PeerError("a ledger is not acceptable", host=who, found=_short(raw))
    return {node: Entry.from_list(entry, who) for node, entry in raw.items()}


def total_tokens(ledger: Mapping[str, Entry]) -> int:
    """Tokens that the whole fleet has committed."""
    return sum(entry.tokens for entry in ledger.values())


@dataclass(frozen=True)
class Contribution:
    """What a node says of itself when it asks to take part in the averaging of a round.

    Attributes:
        node: its name.
        round: the round that its work belongs to.
        before: its committed work without this round.
        tokens: trained in this round; also its weight in the mean.
        records: completed in this round.
        loss: mean training loss of this round, nats per byte; None where it trained nothing.
        train_seconds: wall time spent training in this round.
        cpu_seconds: processor time spent training in this round.
        averaging_seconds: how long its last averaging took; the next round allows for the longest.
        arrived: its clock (unix seconds) when it was ready to average.
        base: digest of the weights that it began the round with.
        ledger: its view of the fleet.
        taken_over: of its records, those that it trained for lost nodes, by the node that owns them.
        progress: how far all shards have been read with what this node has done.
    """

    node: str
    round: int
    before: Entry
    tokens: int
    records: int
    loss: float | None
    train_seconds: float
    cpu_seconds: float
    averaging_seconds: float
    arrived: float
    base: str
    ledger: Ledger
    taken_over: Mapping[str, int]
    progress: Progress

    @property
    def tokens_per_second(self) -> float:
        """Speed in this round; 0 where it trained nothing."""
        return self.tokens / self.train_seconds if self.train_seconds > 0 else 0.0

    def to_message(self, shards: Shards) -> dict[str, Any]:
        """As sent (plain values only), as a part of a request (`admission`)."""
        return {
            "node": self.node,
            "round": self.round,
            "before": self.before.to_list(),
            "tokens": self.tokens,
            "records": self.records,
            "loss": self.loss,
            "train_seconds": self.train_seconds,
            "cpu_seconds": self.cpu_seconds,
            "averaging_seconds": self.averaging_seconds,
            "arrived": self.arrived,
            "base": self.base,
            "ledger": ledger_to_json(self.ledger),
            "taken_over": dict(self.taken_over),
            "progress": progress_to_json(self.progress, shards),
        }

    def to_progress(self) -> dict[str, Any]:
        """As written to progress.jsonl."""
        return {
            "node": self.node,
            "tokens": self.tokens,
            "records": self.records,
            "loss": self.loss,
            "tokens_per_second": round(self.tokens_per_second, 1),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "train_seconds": round(self.train_seconds, 3),
            "arrived_unix": round(self.arrived, 3),
            "for": dict(self.taken_over),
        }


def read_contribution(raw: Any, shards: Shards) -> Contribution:
    """Check and read a peer's message.

    Raises:
        PeerError: a field is missing, unknown, of the wrong type, out of range or not finite, or the node is
            not of this run.
    """
    if not isinstance(raw, dict):
        raise PeerError("a message is not a set of fields", found=_short(raw))
    fields = Fields(raw, "averaging")
    names = shards.nodes
    node = fields.text("node")
    if node not in names:
        raise PeerError("a node that is not of this run asks to take part", host=node)
    fields.who = node
    contribution = Contribution(
        node=node,
        round=fields.whole("round"),
        before=Entry.from_list(fields.take("before"), node),
        tokens=fields.whole("tokens"),
        records=fields.whole("records"),
        loss=fields.number_or_none("loss"),
        train_seconds=fields.number("train_seconds"),
        cpu_seconds=fields.number("cpu_seconds"),
        averaging_seconds=fields.number("averaging_seconds"),
        arrived=fields.number("arrived"),
        base=fields.digest("base"),
        ledger=ledger_from_json(fields.take("ledger"), names, node),
        taken_over=_counts(fields.take("taken_over"), names, node),
        progress=progress_from_json(fields.take("progress"), shards, node),
    )
    fields.end()
    return contribution


def _counts(raw: Any, known: frozenset[str], who: str) -> dict[str, int]:
    """Whole numbers by names of nodes of this run."""
    if not isinstance(raw, dict) or not all(
        isinstance(node, str) and node in known and type(count) is int and 0 <= count <= _MOST
        for node, count in raw.items()
    ):
        raise PeerError("records by node are not acceptable", host=who, found=_short(raw))
    return raw


def merge_ledgers(group: Iterable[Contribution]) -> Ledger:
    """The ledger after an averaging: the same on all members, whatever each knew before.

    Members count as they claim, absent nodes as the member that knows most of them. So does a member that
    brings nothing: it was away, and what others had from it in an averaging of pairs may be news to it.
    """
    members = list(group)
    merged: Ledger = {}
    for member in members:
        for node, entry in member.ledger.items():
            merged[node] = max(merged.get(node, entry), entry, key=Entry.to_list)
    for member in members:
        before = member.before
        if not member.tokens:
            before = max(before, merged.get(member.node, before), key=Entry.to_list)
        merged[member.node] = Entry(
            before.tokens + member.tokens, before.records + member.records, before.rounds + 1
        )
    return merged


class Fields:
    """A peer's message, taken apart field by field."""

    def __init__(self, raw: Mapping[Any, Any], who: str) -> None:
        self._raw = dict(raw)
        self.who = who

    def take(self, name: str) -> Any:
        """The field as it came; PeerError if it is missing."""
        if name not in self._raw:
            raise PeerError("a peer's message lacks a field", host=self.who, field=name)
        return self._raw.pop(name)

    def whole(self, name: str, low: int = 0) -> int:
        """A whole number from `low` up."""
        value = self.take(name)
        if type(value) is not int or not low <= value <= _MOST:
            raise self._bad(name, value)
        return value

    def number(self, name: str) -> float:
        """A finite number from 0 up."""
        value = self.take(name)
        if type(value) not in {int, float} or not math.isfinite(value) or value < 0:
            raise self._bad(name, value)
        return float(value)

    def number_or_none(self, name: str) -> float | None:
        """A finite number from 0 up, or nothing."""
        if self._raw.get(name, 0) is None:
            del self._raw[name]
            return None
        return self.number(name)

    def text(self, name: str, most: int = 64) -> str:
        """A short text."""
        value = self.take(name)
        if not isinstance(value, str) or len(value) > most:
            raise self._bad(name, value)
        return value

    def digest(self, name: str) -> str:
        """A SHA-256 in hexadecimal."""
        value = self.text(name)
        if len(value) != _DIGEST_DIGITS or set(value) - set("0123456789abcdef"):
            raise self._bad(name, value)
        return value

    def end(self) -> None:
        """Refuse what was not taken."""
        if self._raw:
            raise PeerError(
                "a peer's message has an unknown field", host=self.who, field=_short(next(iter(self._raw)))
            )

    def _bad(self, name: str, value: Any) -> PeerError:
        return PeerError("a peer's message is not acceptable", host=self.who, field=name, found=_short(value))


def _short(value: Any) -> str:
    return repr(value)[:80]
