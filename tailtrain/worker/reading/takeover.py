"""Who reads what until the next averaging.

A node that was in the last averaging reads its own shards. What is left of the shards of nodes that were not
is dealt to the members, shelf by shelf and in proportion to their speeds. A node that returns reads nothing
until it has been in an averaging: its shelves are with the others until then. So nobody has to agree on
anything: all members know the same averaging, and work out the same.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import PeerError
from tailtrain.worker.reading.reading_progress import NOTHING_READ, START, Progress, ShardProgress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailtrain.worker.reading.shards import Shard, Shards

Key = tuple[str, str]
"""Domain and node of a shard."""

Parts = dict[Key, frozenset[int] | None]
"""The shelves of each shard that one node reads; None stands for the whole shard, epoch after epoch."""

_HASHES = 1 << 64


def group_from_json(raw: Any, shards: Shards, who: str) -> dict[str, float]:
    """Check and read the members of an averaging and their speeds; nodes that left the fleet are left out.

    Raises:
        PeerError: it is not a mapping of names to speeds.
    """
    if not isinstance(raw, dict) or not all(
        isinstance(node, str) and type(speed) in {int, float} and 0 <= speed < math.inf
        for node, speed in raw.items()
    ):
        raise PeerError("the members of an averaging are not acceptable", host=who, found=repr(raw)[:80])
    return {node: float(speed) for node, speed in raw.items() if node in shards.nodes}


def parts_of(shards: Shards, progress: Progress, group: Mapping[str, float]) -> Parts:
    """What this node reads until the next averaging.

    Args:
        shards: all shards, as this node sees them.
        progress: how far they have been read.
        group: tokens per second of each member of the last averaging; of none before the first.
    """
    own: Parts = {shard.key: None for shard in shards.own}
    if not shards.taken_over or not group:
        return own
    if shards.node not in group:
        return {}
    taken: dict[Key, set[int]] = {}
    for (key, shelf), member in deal(shards, progress, group).items():
        if member == shards.node:
            taken.setdefault(key, set()).add(shelf)
    return own | {key: frozenset(shelves) for key, shelves in taken.items()}


def deal(shards: Shards, progress: Progress, group: Mapping[str, float]) -> Mapping[tuple[Key, int], str]:
    """Which member reads each of the shelves that are left of lost nodes' shards, domain by domain.

    Every shelf has an order of members of its own (weighted rendezvous hashing: Thaler and Ravishankar 1998,
    with weights by Schindelhauer and Schomaker 2005), and goes to the first of them that has not its share of
    the records yet. So nearly all shelves stay where they are from round to round, as work goes on and speeds
    vary, and what a member has fetched is what it reads; yet nobody has more than its share and one shelf.
    """
    weights = {node: speed for node, speed in sorted(group.items()) if speed > 0}
    weights = weights or dict.fromkeys(sorted(group), 1.0)
    dealt: dict[tuple[Key, int], str] = {}
    for domain in sorted({domain for domain, _ in shards.by_key}):
        left = [
            (shard, shelf)
            for (of, node), shard in sorted(shards.by_key.items())
            if of == domain and node not in group
            for shelf in _left(shard, progress.get(shard.key, NOTHING_READ))
        ]
        total = sum(shelf.records for _, shelf in left)
        shares = {node: total * weight / sum(weights.values()) for node, weight in weights.items()}
        loads = dict.fromkeys(weights, 0)
        # What was begun is dealt first, so that it stays with the one who began it.
        for shard, shelf in sorted(left, key=lambda item: not item[1].begun):
            order = sorted(weights, key=lambda node: _distance(shard, shelf, node) / weights[node])
            member = next((node for node in order if loads[node] < shares[node]), order[0])
            loads[member] += shelf.records
            dealt[shard.key, shelf.index] = member
    return dealt


@dataclass(frozen=True)
class _Left:
    """A shelf that is not finished, and how many of its records are left."""

    epoch: int
    index: int
    records: int
    begun: bool


def _left(shard: Shard, progress: ShardProgress) -> Iterator[_Left]:
    for shelf in shard.shelves(progress.epoch):
        if shelf.index not in progress.finished:
            done = progress.begun.get(shelf.index, START).done
            begun = shelf.index in progress.begun
            yield _Left(progress.epoch, shelf.index, shelf.records - done, begun)


def _distance(shard: Shard, shelf: _Left, node: str) -> float:
    """An exponentially distributed number that follows from the names; the nearest by weight is first."""
    text = f"{node}/{shard.domain}/{shard.node}/{shelf.epoch}/{shelf.index}"
    return -math.log((int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) + 1) / _HASHES)
