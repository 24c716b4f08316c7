"""How long an averaging takes, how the weights are shared out among reducers, and how long a round should be.

With n nodes, V bytes of weights (P parameters x b bytes), s_i the part of the weights that node i averages
for all, and B_i what its link moves in each direction:

- **All** (weighted butterfly all-reduce): node i sends V (1 - s_i) as a client and V s_i (n - 1) as a
  reducer, together V (1 + (n - 2) s_i), and receives as much. It takes as long as the busiest link:

      max_i  V (1 + (n - 2) s_i) / B_i

  (hivemind, `averaging/load_balancing.py`; Patarasu and Yuan 2009 for equal parts, where it is the ring's
  2 (n - 1) / n V / B). Between two nodes V (s_i + s_j) goes each way, which a slow link between just these
  two limits as well. The best s is a linear program, as hivemind has it, with the pairs added; scipy solves
  it.
- **Star**: the primary has s = 1, so its link carries V (n - 1) each way.
- **Pairs**: V each way in every pair, whoever reduces. A round waits for its slowest pair: the slowest node
  always has a partner, and two that share a slow link meet in one of n - 1 rounds.

To each come the matchmaking, some round trips of the slowest path, and the first part: a reducer answers it
when it has it from all others (`Overheads`). Against four hivemind peers on links of 20 Mbit/s, 2M
parameters: 5.8 s predicted, 6.6 s measured; in 16 bits 3.4 and 3.3 s; with one link of 4 Mbit/s and equal
parts 27.4 and 27.2 s; in 8 bits 2.2 and 1.0 s, for what reason is not known.

**Round length.** Longer rounds spread an averaging over more tokens, but a node that fails loses what it did
since the last one, on average half a round. With C seconds of training, S of averaging and f failures per
node and second, the time per token is proportional to (C + S) / (C (1 - f C / 2)), which is least at

    C = sqrt(S^2 + 2 S / f) - S

(for short S that is Young's interval between checkpoints, sqrt(2 S / f), CACM 17(9), 1974). Left and right of
it the time per token only grows, so limits on C just cut it off.

**Drift.** Between averagings nodes drift apart, as random walks do: in pairs, each round leaves
p = (n - 2) / (2 (n - 1)) of the distance from before, so that with a group of all every k rounds the fleet is
as far apart as after 1 + p + p^2 + ... (k terms) rounds with all. So many times shorter must its rounds be.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tailtrain.planning.topology.offers import DAY_SECONDS, Compression, Way

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tailtrain.planning.topology.offers import Limits, Link, Offer, Overheads

    Links = Mapping[tuple[str, str], Link]
    """By pair of names in alphabetical order."""

_SLACK = 1e-7  # of a solver's solution
_BYTES = {Compression.NONE: 4.0, Compression.FP16: 2.0, Compression.INT8: 1.0}


def weight_bytes(parameters: int, compression: Compression) -> float:
    """What the weights take on their way."""
    return parameters * _BYTES[compression]


def exchange_seconds(
    reducers: Mapping[str, float], offers: Sequence[Offer], links: Links, volume: float
) -> float:
    """How long all take to average together with these parts, without overheads."""
    among = len(offers)
    if among < 2:  # noqa: PLR2004 - it takes two to exchange anything
        return 0.0
    nodes = (volume * (1 + (among - 2) * reducers[offer.node]) / offer.bytes_per_second for offer in offers)
    pairs = (
        volume * (reducers[one] + reducers[other]) / link.bytes_per_second
        for (one, other), link in links.items()
        if one in reducers and other in reducers
    )
    return max((*nodes, *pairs))


def best_reducers(offers: Sequence[Offer], links: Links) -> dict[str, float]:
    """The parts of the weights with which all average soonest, adding up to 1.

    Of all such parts, those that are spread most evenly over what links can carry: where one slow link holds
    all up, any of the others could reduce everything in that time, and none should have to.
    """
    among = len(offers)
    if among < 3:  # noqa: PLR2004 - with two nodes it makes no difference who reduces
        return {offer.node: 1 / among for offer in offers}
    slowest = min(offer.bytes_per_second for offer in offers)
    rates = {offer.node: offer.bytes_per_second / slowest for offer in offers}
    pairs = {
        pair: link.bytes_per_second / slowest
        for pair, link in links.items()
        if pair[0] in rates and pair[1] in rates
    }
    if not pairs and set(rates.values()) == {1.0}:
        return {offer.node: 1 / among for offer in offers}  # as until links are measured: by symmetry
    # In units of the time in which the slowest link sends all weights once, so that all numbers are near 1:
    # (n - 2) s_i / b - t <= -1 / b for nodes, (s_i + s_j) / b - t <= 0 for pairs.
    rows = [({node: (among - 2) / rate}, 1.0, -1 / rate) for node, rate in rates.items()]
    rows += [(dict.fromkeys(pair, 1 / rate), 1.0, 0.0) for pair, rate in pairs.items()]
    _, soonest = _least(rates, rows)
    allowed = soonest * (1 + _SLACK)
    # Within that time: s_i / b - u <= 0, with u in the place of t.
    rows = [({node: (among - 2) / rate}, 0.0, allowed - 1 / rate) for node, rate in rates.items()]
    rows += [(dict.fromkeys(pair, 1 / rate), 0.0, allowed) for pair, rate in pairs.items()]
    rows += [({node: 1 / rate}, 1.0, 0.0) for node, rate in rates.items()]
    parts, _ = _least(rates, rows)
    return parts


def _least(
    nodes: Iterable[str], rows: Sequence[tuple[Mapping[str, float], float, float]]
) -> tuple[dict[str, float], float]:
    """Parts of the nodes that add up to 1, with the least bound that they can have.

    Args:
        nodes: who has a part.
        rows: factors f of parts, of the bound (t) and a limit m: sum f_i s_i - t x <= m.
    """
    # scipy takes longer to load than all else here together: only who has to choose pays for it.
    from scipy.optimize import linprog  # noqa: PLC0415
    from scipy.sparse import coo_array  # noqa: PLC0415

    index = {node: number for number, node in enumerate(nodes)}
    among = len(index)
    entries = [
        (row, index[node], factor)
        for row, (factors, _, _) in enumerate(rows)
        for node, factor in factors.items()
    ]
    entries += [(row, among, -bound) for row, (_, bound, _) in enumerate(rows) if bound]
    down, across, values = zip(*entries, strict=True)
    found = linprog(
        [0.0] * among + [1.0],
        A_ub=coo_array((values, (down, across)), shape=(len(rows), among + 1)),
        b_ub=[most for _, _, most in rows],
        A_eq=[[1.0] * among + [0.0]],
        b_eq=[1.0],
        method="highs",
    )
    parts = [max(0.0, float(part)) for part in found.x[:among]]
    total = sum(parts)
    return {node: parts[number] / total for node, number in index.items()}, float(found.x[among])


def averaging_seconds(
    way: Way,
    reducers: Mapping[str, float],
    offers: Sequence[Offer],
    links: Links,
    volume: float,
    overheads: Overheads,
) -> float:
    """How long one averaging of this kind takes; for pairs, on average over the rounds."""
    among = len(offers)
    if among < 2:  # noqa: PLR2004 - nobody to average with
        return 0.0
    if way is not Way.PAIRS:
        moving = exchange_seconds(reducers, offers, links, volume)
        part = _part(volume, overheads)
        moving += (among - 1) * max(
            min(part, volume * reducers[offer.node]) / offer.bytes_per_second for offer in offers
        )
    else:
        usual = volume / min(offer.bytes_per_second for offer in offers)
        usual += _part(volume / 2, overheads) / min(offer.bytes_per_second for offer in offers)
        here = {offer.node for offer in offers}
        moving = usual + sum(
            max(0.0, volume / link.bytes_per_second - usual) / (among - 1)
            for (one, other), link in links.items()
            if one in here and other in here
        )
    return moving + _overhead(offers, links, overheads)


def _part(volume: float, overheads: Overheads) -> float:
    """Bytes of what travels at once of so many."""
    return min(overheads.part_bytes, volume, max(overheads.least_part_bytes, volume / overheads.parts))


def _overhead(offers: Sequence[Offer], links: Links, overheads: Overheads) -> float:
    here = {offer.node for offer in offers}
    slowest = max(
        *(offer.round_trip_seconds for offer in offers),
        *(link.round_trip_seconds for (one, other), link in links.items() if {one, other} <= here),
        0.0,
    )
    return overheads.matchmaking_seconds + overheads.round_trips * slowest


def calibrated(
    measured: float,
    way: Way,
    reducers: Mapping[str, float],
    offers: Sequence[Offer],
    links: Links,
    volume: float,
    overheads: Overheads,
) -> tuple[tuple[Offer, ...], dict[tuple[str, str], Link], Overheads]:
    """Offers, links and overheads that explain an averaging of this many seconds.

    All rates are taken to be off by the same factor: one averaging says no more. One that took less than the
    overheads alone says that these are smaller; then moving the weights took half of it.

    Args:
        measured: seconds that averagings of this kind took, such as the median of the last rounds.
        way: as for `averaging_seconds`, as the rest.
        reducers: of that averaging.
        offers: as assumed so far.
        links: as assumed so far.
        volume: bytes of weights.
        overheads: as assumed so far.
    """
    bare = replace(overheads, matchmaking_seconds=0.0, round_trips=0.0)
    moving = averaging_seconds(way, reducers, offers, links, volume, bare)
    fixed = _overhead(offers, links, overheads)
    if len(offers) < 2 or measured <= 0:  # noqa: PLR2004 - nothing was averaged
        return tuple(offers), dict(links), overheads
    if fixed > measured / 2 and measured < moving + fixed:
        less = min(1.0, measured / 2 / fixed)
        overheads = replace(
            overheads,
            matchmaking_seconds=overheads.matchmaking_seconds * less,
            round_trips=overheads.round_trips * less,
        )
        fixed *= less
    factor = moving / (measured - fixed)
    return (
        tuple(replace(each, bytes_per_second=each.bytes_per_second * factor) for each in offers),
        {
            pair: replace(link, bytes_per_second=link.bytes_per_second * factor)
            for pair, link in links.items()
        },
        overheads,
    )


def drift(way: Way, among: int, all_each: int) -> float:
    """How many rounds with all drift as far apart as the nodes do under this way (at least 1)."""
    if way is not Way.PAIRS or among < 2 or all_each == 1:  # noqa: PLR2004 - a node cannot drift from itself
        return 1.0
    left = (among - 2) / (2 * (among - 1))
    return (1 - left**all_each) / (1 - left)


def best_round_seconds(averaging: float, limits: Limits, most: float) -> float:
    """The training of a round for which the time per token is least.

    Args:
        averaging: seconds of an averaging.
        limits: the shortest round, and how often nodes fail.
        most: the longest round.
    """
    failures = limits.failures_per_day / DAY_SECONDS
    best = most
    if failures > 0:
        best = math.sqrt(averaging**2 + 2 * averaging / failures) - averaging
    return max(limits.least_round_seconds, min(best, most))


def cost_per_token(training: float, averaging: float, rate: float, limits: Limits) -> float:
    """Seconds per token that is kept: what failing nodes lose is taken off."""
    kept = 1 - limits.failures_per_day / DAY_SECONDS * training / 2
    return (training + averaging) / (rate * training * kept) if kept > 0 else math.inf
