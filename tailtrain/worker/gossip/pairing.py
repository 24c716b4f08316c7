"""Who averages with whom in a round of gossip: pairs by a shuffle, all together every so often.

All nodes work it out for themselves from what all know: the run, the round and the live nodes. The shuffle is
the order of hashes, so it is the same in every version of every language, and does not depend on the order in
which a node learned of the others. Each shuffle serves for as many rounds as it takes until everybody has met
everybody once (the circle method of tournaments), then comes the next: a fresh shuffle every round would pair
four nodes like the round before every third time, and such a round mixes nothing.

**How well it mixes.** Let every node hold a number; what keeps them apart is the sum of the squared distances
from their mean. A pair that averages leaves half of what the two contribute plus half of what they have in
common, so a round of uniformly random pairs of n (even) nodes leaves on average

    (n - 2) / (2 (n - 1))

of it: 0.4 for six nodes, a half for very many, nothing for two; in a row a little less, since nobody meets
the same node twice before all others. With weights that stay (tokens at a steady
speed) the weighted mean of all nodes does not move, whoever meets whom.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Group = tuple[str, ...]
"""Nodes that average together, in alphabetical order."""

_KEY_BITS = 64


def is_for_all(number: int, all_each: int, *, last: bool = False) -> bool:
    """Whether all average together in a round.

    Args:
        number: the round, from 0 on.
        all_each: every how many rounds; 1 is always, 0 only at the end.
        last: whether it is the run's last round.
    """
    return last or (all_each > 0 and (number + 1) % all_each == 0)


def groups(
    live: Collection[str], run_id: str, number: int, *, all_each: int, last: bool = False
) -> tuple[Group, ...]:
    """Every live node in exactly one group, in alphabetical order of their first members.

    With an odd number of nodes one is alone for the round and goes on from its own weights: each once in as
    many rounds as there are nodes.

    Args:
        live: the nodes that take part.
        run_id: of the run.
        number: the round.
        all_each: as for `is_for_all`.
        last: as for `is_for_all`.
    """
    nodes = set(live)
    if not nodes:
        return ()
    if is_for_all(number, all_each, last=last):
        return (tuple(sorted(nodes)),)
    # Of an odd number, whoever would meet the empty place is alone.
    places = len(nodes) + len(nodes) % 2
    tournament, turn = divmod(number, places - 1)
    seed = f"{run_id}/{tournament}"
    # Turns that follow each other have much in common, and would mix large fleets slowly: they are shuffled.
    turn = int(_shuffled(map(str, range(places - 1)), seed)[turn])
    order: list[str | None] = [*_shuffled(nodes, seed)]
    order += [None] * (places - len(nodes))
    circle = order[turn:-1] + order[:turn]
    meetings = [(order[-1], circle[0])]
    meetings += [(circle[place], circle[-place]) for place in range(1, places // 2)]
    return tuple(sorted(tuple(sorted(filter(None, meeting))) for meeting in meetings))


def group_of(node: str, found: Iterable[Group]) -> Group:
    """The group that a node is in; itself alone where it is in none."""
    return next((group for group in found if node in group), (node,))


def group_bits(group: Group, number: int) -> str:
    """The key under which a group meets, as hivemind wants it: zeros and ones.

    Members and round are in it, so nodes with different views of who is live wait for each other in vain
    instead of averaging with those they did not mean.
    """
    said = "\n".join((str(number), *group)).encode()
    return f"{int.from_bytes(hashlib.sha256(said).digest()) >> (256 - _KEY_BITS):0{_KEY_BITS}b}"


def _shuffled(nodes: Iterable[str], seed: str) -> list[str]:
    return sorted(nodes, key=lambda node: (hashlib.sha256(f"{seed}/{node}".encode()).digest(), node))
