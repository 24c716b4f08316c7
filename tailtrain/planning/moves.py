"""What changes hands from one placement to the next."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tailtrain.planning.placement import Range


@dataclass(frozen=True)
class Moves:
    """What changes from one placement to the next, in records.

    Attributes:
        gained: per node of the new placement, the records that it did not own before.
        lost: per node of either placement, the records that it no longer owns.
        fetched: per node of the new placement, the chunks of which it owned nothing before, in reading order.
        released: per node of either placement, the chunks of which it owns nothing any more.
        records: the sum of `gained`.
    """

    gained: dict[str, int]
    lost: dict[str, int]
    fetched: dict[str, tuple[str, ...]]
    released: dict[str, tuple[str, ...]]
    records: int


def moves(
    previous: Mapping[str, Iterable[Range | tuple[str, int, int]]] | None,
    new: Mapping[str, Iterable[Range | tuple[str, int, int]]],
) -> Moves:
    """Summarise how `new` differs from `previous`, node by node.

    A node that is only in `previous` has everything in `lost`. What counts is what the node owned before,
    whether or not its files are still there: that is for the probe to say.
    """
    before = {node: _by_chunk(ranges) for node, ranges in (previous or {}).items()}
    after = {node: _by_chunk(ranges) for node, ranges in new.items()}
    gained: dict[str, int] = {}
    lost: dict[str, int] = {}
    fetched: dict[str, tuple[str, ...]] = {}
    released: dict[str, tuple[str, ...]] = {}
    for node in dict.fromkeys([*after, *before]):
        old, now = before.get(node, {}), after.get(node, {})
        kept = sum(_overlap(now[chunk], old[chunk]) for chunk in now if chunk in old)
        lost[node] = sum(_length(spans) for spans in old.values()) - kept
        released[node] = tuple(chunk for chunk in old if chunk not in now)
        if node in after:
            gained[node] = sum(_length(spans) for spans in now.values()) - kept
            fetched[node] = tuple(chunk for chunk in now if chunk not in old)
    return Moves(gained, lost, fetched, released, sum(gained.values()))


def _by_chunk(ranges: Iterable[Range | tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for chunk, start, stop in ranges:
        spans[chunk].append((start, stop))
    return dict(spans)


def _length(spans: Iterable[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in spans)


def _overlap(left: Iterable[tuple[int, int]], right: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(a_stop, b_stop) - max(a, b)) for a, a_stop in left for b, b_stop in right)
