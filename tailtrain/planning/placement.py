"""Which node owns which records: row ranges under exact quotas, moving as little as possible.

A data set is a list of immutable chunks. A node's share of it is a tuple of row ranges in those chunks.
Every record has exactly one owner, and every node owns exactly its quota. A new placement starts from the
previous one and keeps what is in place up to the new quota ("sticky quotas"), so the number of records that
change hands is the arithmetic minimum: the sum of what the growing nodes lack.

Within that minimum the choice is free, and is used to keep chunks whole, because a node fetches whole chunk
files. A shrinking node gives up its smallest fragments first, then whole chunks from its end, and cuts one
range at most. What is given up goes first to nodes that hold another part of the same chunk (nothing to
fetch), then in reading order to the others, with one cut per node at most. So a change adds at most one range
per node to those that were there, and heals fragments where it can.

Everything here is a pure function of its arguments: two operators get the same answer.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class Chunk(NamedTuple):
    """An immutable file of records: its SHA-256 in hex, and how many records it has."""

    sha256: str
    rows: int


class Range(NamedTuple):
    """The records `start` (included) to `stop` (excluded) of one chunk."""

    chunk: str
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many records this is."""
        return self.stop - self.start


Placement = dict[str, tuple[Range, ...]]
"""Node to the ranges that it owns, in the order of sharing out (`tailtrain.spread`), here: reading order."""


def place(
    chunks: Sequence[Chunk],
    quotas: Mapping[str, int],
    previous: Mapping[str, Iterable[Range | tuple[str, int, int]]] | None = None,
) -> Placement:
    """Give every record exactly one owner, and every node exactly its quota.

    Args:
        chunks: the data set's training chunks, in the order in which they are shared out; their names differ.
        quotas: records per node, in inventory order; they add up to the records of all chunks.
        previous: the placement so far. Chunks and nodes that are gone are ignored, ranges are clipped to the
            chunk, and where two nodes claim a record the one that comes first in `quotas` has it.

    Returns:
        The ranges of every node of `quotas`, neighbouring ranges merged. Without a previous placement they
        are contiguous, in inventory order.

    Raises:
        DataError: the quotas do not add up, a quota or a row count is negative, or a chunk is named twice.
    """
    _check(chunks, quotas)
    order = {chunk.sha256: index for index, chunk in enumerate(chunks)}
    owned = disjoint(chunks, list(quotas), previous or {})
    for node, ranges in owned.items():
        surplus = sum(each.rows for each in ranges) - quotas[node]
        if surplus > 0:
            owned[node] = _release(ranges, surplus, chunks, order)
    orphans = _orphans(chunks, owned)
    lacking = {
        node: quota - sum(each.rows for each in owned[node])
        for node, quota in quotas.items()
        if quota > sum(each.rows for each in owned[node])
    }
    rest = _give_to_sharers(orphans, owned, lacking)
    _give_in_order(rest, owned, lacking)
    return {node: _merged(ranges, order) for node, ranges in owned.items()}


def _check(chunks: Sequence[Chunk], quotas: Mapping[str, int]) -> None:
    names: set[str] = set()
    for chunk in chunks:
        if chunk.rows < 0:
            raise DataError("a chunk cannot have fewer than no records", field=chunk.sha256, found=chunk.rows)
        if chunk.sha256 in names:
            raise DataError("the chunk is listed twice", field=chunk.sha256)
        names.add(chunk.sha256)
    for node, quota in quotas.items():
        if quota < 0:
            raise DataError("a quota cannot be below zero", host=node, field="quota", found=quota)
    total = sum(chunk.rows for chunk in chunks)
    if sum(quotas.values()) != total:
        raise DataError(
            "the quotas do not add up to the records of the data set",
            field="quotas",
            found=sum(quotas.values()),
            expected=total,
        )


def disjoint(
    chunks: Sequence[Chunk],
    nodes: Sequence[str],
    claims: Mapping[str, Iterable[Range | tuple[str, int, int]]],
) -> dict[str, list[Range]]:
    """Read claims to rows as valid ranges of these nodes, each row once: the first of two nodes has it."""
    order = {chunk.sha256: index for index, chunk in enumerate(chunks)}
    of_chunk: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    for rank, node in enumerate(nodes):
        for chunk, start, stop in claims.get(node, ()):
            index = order.get(chunk)
            if index is None:
                continue
            first, last = max(start, 0), min(stop, chunks[index].rows)
            if first < last:
                of_chunk[chunk].append((rank, first, last, node))
    owned: dict[str, list[Range]] = {node: [] for node in nodes}
    for chunk, chunk_claims in of_chunk.items():
        taken: list[tuple[int, int]] = []
        for _, start, stop, node in sorted(chunk_claims):
            for free_start, free_stop in list(_gaps(taken, start, stop)):
                owned[node].append(Range(chunk, free_start, free_stop))
                taken.append((free_start, free_stop))
            taken.sort()
    return {node: list(_merged(ranges, order)) for node, ranges in owned.items()}


def _release(
    ranges: Sequence[Range], surplus: int, chunks: Sequence[Chunk], order: Mapping[str, int]
) -> list[Range]:
    """Give up `surplus` records: smallest fragments, then whole chunks from the end, one cut at most."""

    def fragment(each: Range) -> bool:
        return each.rows < chunks[order[each.chunk]].rows

    candidates = [
        *sorted((each for each in ranges if fragment(each)), key=lambda each: each.rows),
        *(each for each in reversed(ranges) if not fragment(each)),
    ]
    kept = set(ranges)
    for each in candidates:
        if surplus == 0:
            break
        kept.remove(each)
        if each.rows <= surplus:
            surplus -= each.rows
            continue
        # Cut on the side where the rest of the chunk lies, so that the part can join it.
        at_head = each.start > 0 and each.stop == chunks[order[each.chunk]].rows
        start, stop = (each.start + surplus, each.stop) if at_head else (each.start, each.stop - surplus)
        kept.add(Range(each.chunk, start, stop))
        break
    return sorted(kept, key=lambda each: (order[each.chunk], each.start))


def _orphans(chunks: Sequence[Chunk], owned: Mapping[str, Sequence[Range]]) -> list[Range]:
    """Find the ranges that nobody owns, in reading order."""
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for ranges in owned.values():
        for each in ranges:
            taken[each.chunk].append((each.start, each.stop))
    return [
        Range(chunk.sha256, start, stop)
        for chunk in chunks
        for start, stop in _gaps(sorted(taken.get(chunk.sha256, ())), 0, chunk.rows)
    ]


def _give_to_sharers(
    orphans: Sequence[Range], owned: dict[str, list[Range]], lacking: dict[str, int]
) -> list[Range]:
    """Give parts of chunks to nodes that hold another part of them; return what is left, in reading order."""
    touched = {orphan.chunk for orphan in orphans}
    sharers: dict[str, list[tuple[Range, str]]] = defaultdict(list)
    for node in lacking:
        for each in owned[node]:
            if each.chunk in touched:
                sharers[each.chunk].append((each, node))
    rest: list[Range] = []
    for orphan in orphans:
        start, stop = orphan.start, orphan.stop
        # Neighbours first: their range grows, and no new boundary appears.
        holders = sharers.get(orphan.chunk, [])
        near = [item for item in holders if item[0].stop == orphan.start or item[0].start == orphan.stop]
        for each, node in [*near, *(item for item in holders if item not in near)]:
            take = min(lacking[node], stop - start)
            if take == 0:
                continue
            lacking[node] -= take
            if each.start == stop:
                owned[node].append(Range(orphan.chunk, stop - take, stop))
                stop -= take
            else:
                owned[node].append(Range(orphan.chunk, start, start + take))
                start += take
        if start < stop:
            rest.append(Range(orphan.chunk, start, stop))
    return rest


def _give_in_order(orphans: Iterable[Range], owned: dict[str, list[Range]], lacking: dict[str, int]) -> None:
    """Deal the orphans out in reading order, each node taking what it lacks before the next one's turn."""
    waiting = iter([node for node, rows in lacking.items() if rows > 0])
    node = next(waiting, None)
    for orphan in orphans:
        start = orphan.start
        while start < orphan.stop and node is not None:
            take = min(lacking[node], orphan.stop - start)
            owned[node].append(Range(orphan.chunk, start, start + take))
            start += take
            lacking[node] -= take
            if lacking[node] == 0:
                node = next(waiting, None)


def _gaps(taken: Iterable[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of start..stop that the sorted, disjoint spans of `taken` leave free."""
    for taken_start, taken_stop in taken:
        if taken_stop <= start:
            continue
        if taken_start >= stop:
            break
        if taken_start > start:
            yield start, taken_start
        start = max(start, taken_stop)
    if start < stop:
        yield start, stop


def _merged(ranges: Iterable[Range], order: Mapping[str, int]) -> tuple[Range, ...]:
    """Sort into reading order and join what touches."""
    merged: list[Range] = []
    for each in sorted(ranges, key=lambda each: (order[each.chunk], each.start)):
        if merged and merged[-1].chunk == each.chunk and merged[-1].stop == each.start:
            merged[-1] = Range(each.chunk, merged[-1].start, each.stop)
        else:
            merged.append(each)
    return tuple(merged)
