"""A topology in words: what a plan prints of it, and how it compares with what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.topology.offers import Compression, Role, Way

if TYPE_CHECKING:
    from tailtrain.planning.topology.offers import Prediction, Topology

PREDICTION_TARGET = 0.15
"""How far the measured time of a round may be from the predicted one, as a share of it."""

_NAMED = 8
_COMPRESSED = {
    Compression.NONE: "uncompressed",
    Compression.FP16: "in 16 bits",
    Compression.INT8: "in 8 bits",
}


def topology_lines(topology: Topology, *, chosen: bool = True) -> tuple[str, ...]:
    """What the plan says: the round, its averaging, what to expect, and what other shares would give.

    Args:
        topology: as planned.
        chosen: whether the optimizer chose it; what is declared is not compared with other shares.
    """
    said = topology.prediction
    averaging = said.averaging_seconds
    lines = [
        f"round: {said.seconds:.1f} s, of it {averaging:.1f} s of averaging; {said.tokens:,.0f} tokens",
        f"averaging: {_way(topology)}, {_COMPRESSED[topology.compression]}",
        f"speed: {said.tokens_per_second:,.0f} tokens/s, {said.utilisation:.0%} of all speeds",
        f"against the fastest node alone: {topology.speedup:.2f} times (ideal: {topology.ideal:.2f})",
    ]
    if chosen:
        lines.append(_compared("shares by cores", topology.by_cores, said))
        lines.append(_compared("equal shares", topology.equal, said))
    if topology.guessed:
        lines.append(_guessed(topology))
    lines += [
        f"{node} does not train, it {Role.DATA.value}: {reason}"
        for node, reason in sorted(topology.reasons.items())
    ]
    if topology.warning:
        lines.append(f"warning: {topology.warning}")
    return tuple(lines)


def share_line(topology: Topology, node: str) -> str:
    """What the plan says of one node."""
    if topology.roles[node] is not Role.TRAINS:
        return topology.roles[node].value
    text = f"{topology.shares[node]:.1%} of records and work, {topology.steps[node]:,} steps a round"
    reduces = topology.reducers[node]
    return text if topology.way is Way.PAIRS and topology.all_each == 0 else f"{text}, averages {reduces:.0%}"


def measured_line(topology: Topology, measured_seconds: float) -> str:
    """What the report says after a run.

    Args:
        topology: as planned.
        measured_seconds: of a round, on average.
    """
    predicted = topology.prediction.seconds
    off = measured_seconds / predicted - 1
    met = "within" if abs(off) <= PREDICTION_TARGET else "not within"
    return (
        f"a round took {measured_seconds:.1f} s, predicted {predicted:.1f} s ({off:+.0%}):"
        f" {met} the target of {PREDICTION_TARGET:.0%}"
    )


def _way(topology: Topology) -> str:
    if topology.way is Way.STAR:
        return "by the primary, for all"
    if topology.way is Way.GROUP:
        return "all together"
    return f"in pairs, all together every {topology.all_each} rounds and at the end"


def _guessed(topology: Topology) -> str:
    """Whose speed is not measured yet."""
    names = topology.guessed
    if len(names) == len(topology.roles):
        return "speeds are guessed by cores: no node has measured its own yet"
    who = ", ".join(names) if len(names) <= _NAMED else f"{len(names):,} nodes"
    return f"guessed by cores, not measured yet: the speed of {who}"


def _compared(name: str, other: Prediction, chosen: Prediction) -> str:
    times = other.seconds / chosen.seconds
    return (
        f"with {name}: {other.seconds:.1f} s for the same tokens, {times:.2f} times as long"
        f" ({other.tokens_per_second:,.0f} tokens/s)"
    )
