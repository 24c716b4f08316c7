"""Shards and shelves: in which order a node's records of a domain are read, and where anybody can know it.

A shard is what one node owns of one domain. In each epoch its row ranges are shuffled and taken a few at a
time: that is a shelf, which is read as a whole. Which shelves an epoch has follows from the seed, the node's
name and its ranges alone, so every node knows every other node's shelves, and any of them can be read
elsewhere when their owner is lost.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.worker.data_config import RowRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.data_config import DomainConfig, Span
    from tailtrain.worker.reading.manifests import Chunk, DataSet

_SHELF_RANGES = 4
_EPOCHS_KEPT = 2  # a shard at the end of its epoch is asked for this one and the next


@dataclass(frozen=True)
class Shelf:
    """Row ranges that are read together; `index` counts an epoch's shelves, `records` the rows in it."""

    index: int
    ranges: tuple[RowRange, ...]
    records: int


class Shard:
    """What one node owns of one domain.

    Args:
        domain: the domain.
        node: who owns it.
        ranges: the rows, in the order in which they are shared out.
        seed: of the run.

    Attributes:
        records: how many rows it has.
        size: how many shelves an epoch has.
        shares: names the ranges: two shards of the same name and other ranges have other shelves.
    """

    def __init__(self, domain: str, node: str, ranges: Sequence[RowRange], *, seed: int) -> None:
        self.domain, self.node = domain, node
        self.records = total_rows(ranges)
        self.size = -(-len(ranges) // _SHELF_RANGES)
        self.shares = _digest(ranges)
        self._ranges, self._seed = tuple(ranges), f"{seed}/{node}/{domain}"
        self._shelves: dict[int, tuple[Shelf, ...]] = {}

    @property
    def key(self) -> tuple[str, str]:
        """Domain and node."""
        return self.domain, self.node

    def order(self, *place: int) -> random.Random:
        """The source of the shuffles at one place of the reading order: the same on all nodes."""
        return random.Random("/".join([self._seed, *map(str, place)]))  # noqa: S311 - a shuffle, not a secret

    def shelves(self, epoch: int) -> tuple[Shelf, ...]:
        """The shelves of an epoch, in reading order."""
        if epoch not in self._shelves:
            ranges = list(self._ranges)
            self.order(epoch).shuffle(ranges)
            groups = [
                tuple(ranges[first : first + _SHELF_RANGES]) for first in range(0, len(ranges), _SHELF_RANGES)
            ]
            while len(self._shelves) >= _EPOCHS_KEPT:
                del self._shelves[min(self._shelves)]
            self._shelves[epoch] = tuple(
                Shelf(index, group, total_rows(group)) for index, group in enumerate(groups)
            )
        return self._shelves[epoch]


class Shards:
    """All shards of a run, as one node sees them.

    Args:
        node: that node.
        shards: of all nodes and domains.
        taken_over: whether the others read what a lost node leaves.

    Attributes:
        by_key: each shard by domain and node.
        nodes: all nodes of the run.
    """

    def __init__(self, node: str, shards: Iterable[Shard], *, taken_over: bool) -> None:
        self.node, self.taken_over = node, taken_over
        self.by_key = {shard.key: shard for shard in shards}
        self.nodes = frozenset(owner for _, owner in self.by_key)

    @property
    def own(self) -> tuple[Shard, ...]:
        """This node's shards that have records."""
        return tuple(shard for shard in self.by_key.values() if shard.node == self.node and shard.records)


def shards_of(config: WorkerConfig, data_sets: Mapping[str, DataSet]) -> Shards:
    """The shards of all nodes, from one node's configuration.

    Args:
        config: that node's.
        data_sets: by domain.
    """
    found = []
    for domain in config.data:
        for node in config.nodes:
            ranges = _ranges_of(domain, node, config, data_sets[domain.domain].shared)
            found.append(Shard(domain.domain, node, ranges, seed=config.seed))
    # A run that tolerates no loss stops at one; where all have all data, nothing is lost with a node.
    return Shards(config.node, found, taken_over=config.sharded and config.training.fault_tolerance)


def _ranges_of(
    domain: DomainConfig, node: str, config: WorkerConfig, shared: Sequence[Chunk]
) -> tuple[RowRange, ...]:
    if node == config.node or not config.sharded:
        return domain.ranges
    return tuple(part for span in domain.others.get(node, ()) for part in _ranges(span, shared))


def _ranges(span: Span, shared: Sequence[Chunk]) -> Iterable[RowRange]:
    """A span as ranges of single chunks, given in the order in which they are shared out."""
    for index in range(span.first, span.last + 1):
        start = span.row if index == span.first else 0
        stop = span.stop if index == span.last else shared[index].rows
        if start < stop:
            yield RowRange(shared[index].sha256, start, stop)


def total_rows(ranges: Iterable[RowRange]) -> int:
    """Records in these ranges."""
    return sum(owned.stop - owned.start for owned in ranges)


def _digest(ranges: Sequence[RowRange]) -> str:
    text = ";".join(f"{own.chunk}:{own.start}:{own.stop}" for own in ranges)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
