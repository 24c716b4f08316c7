"""Which nodes keep a copy of a chunk besides those that train on it.

A consistent-hash ring (Karger et al., STOC 1997): every node has points on it in proportion to its weight, a
chunk has one, and the copies are with the first nodes after it that do not own rows of the chunk. Who keeps
what follows from names and weights alone, so two operators agree, nobody has to remember anything, a node
that is away keeps its place, and a change of the fleet moves only what the changed node's points cover.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# The part of a node with n points is known to about one in the square root of n: to an eighth for two cores.
_POINTS_PER_WEIGHT, _LEAST_POINTS = 32, 32
_FOUR = Struct(">4Q")


class Ring:
    """Nodes in the order in which each chunk asks them.

    Args:
        weights: how much of the copies each node should keep, in any unit; whole cores here.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        points: list[int] = []
        nodes: list[str] = []
        for node in sorted(weights):
            own = _points(node, max(_LEAST_POINTS, round(_POINTS_PER_WEIGHT * weights[node])))
            points += own
            nodes += [node] * len(own)
        order = sorted(range(len(points)), key=points.__getitem__)
        self._places = [points[place] for place in order]
        self._nodes = [nodes[place] for place in order]
        self._count = len(weights)

    def after(self, chunk: str, *, without: Collection[str], wanted: int) -> tuple[str, ...]:
        """The first `wanted` different nodes after a chunk's place, fewer where there are not so many.

        Args:
            chunk: its SHA-256 in hex.
            without: nodes that have it anyway.
            wanted: how many.
        """
        most = min(wanted, self._count - len(without))
        found: dict[str, None] = {}
        start = bisect_right(self._places, int(chunk[:16], 16))
        for step in range(len(self._nodes)):
            if len(found) >= most:
                break
            node = self._nodes[(start + step) % len(self._nodes)]
            if node not in without:
                found[node] = None
        return tuple(found)


def copies_of(
    chunks: Sequence[str], owners: Mapping[str, Collection[str]], ring: Ring, replicas: int
) -> dict[str, frozenset[str]]:
    """The chunks that each node keeps for others; only nodes that keep any are named.

    Args:
        chunks: SHA-256 of each training chunk.
        owners: for each chunk, the nodes that own rows of it.
        ring: of all nodes.
        replicas: how many nodes are to have each chunk, its owners included.
    """
    kept: dict[str, set[str]] = {}
    for chunk in chunks:
        mine = owners[chunk]
        if len(mine) < replicas:
            for node in ring.after(chunk, without=mine, wanted=replicas - len(mine)):
                kept.setdefault(node, set()).add(chunk)
    return {node: frozenset(names) for node, names in kept.items()}


def _points(node: str, count: int) -> list[int]:
    """A node's points, four from each hash; the first ones are the same whatever their number."""
    found: list[int] = []
    for number in range(-(-count // 4)):
        found += _FOUR.unpack(sha256(f"{node}/{number}".encode()).digest())
    return found[:count]
