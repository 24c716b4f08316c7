"""How healthy a node is, from 0 to 1, out of what is measured; who takes part; who does how much.

    health = heartbeat x speed x memory x disk x path

A product, because each factor alone can make a node useless, and because no factor can make up for another.
Each is 1 while nothing is wrong:

- **heartbeat**: 1 while the last sign of life is younger than two beats, then falls in a straight line to 0
  at four. Two may be lost on the way; after four (8 s at a beat of 2 s) Serf itself would call it dead.
- **speed**: 1 while its tokens per second (smoothed) are at least three quarters of its own best, which is
  how much they vary on a machine that is well; then falls in a straight line to 0.6 at none. Being slow never
  excludes a node by itself (a tenth of its best gives 0.65): its work follows its speed anyway, and a node
  that did not train could not show that it is fast again. Beside another trouble it does.
- **memory**: 1 while a tenth of what the node may use is free, then falls in a straight line to 0 at a
  fiftieth: the next burst gets it killed.
- **disk**: 1 with room for two checkpoints, falls in a straight line to 0 with room for none: what cannot be
  kept is lost with the node.
- **path**: 1 direct, 0.8 relayed: a relay is shared and slow, its averagings are late and fail more often.

A node takes part while its health is above 0.5: with one factor gone badly wrong, or with three somewhat.
The fleet decides (averages, commits, goes on) while two thirds of all its nodes take part.

**Work.** A node's share of a round's work is its smoothed speed x its health, over the sum of both: with all
at 1 all finish together, and who is in trouble gets less than it could do. The smoothing takes 0.7 of each
new measurement: at a tenth of its speed a node is down to 0.18 of its work after two rounds, and at full
speed again back at 0.92 after two more. A node's best fades by 1 % a round, so that what has changed for
good becomes the new measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Path = Literal["direct", "relayed"]

TAKES_PART = 0.5
BEAT_SECONDS = 2.0
"""How often a node shows that it lives."""

_BEATS_FINE, _BEATS_DEAD = 2.0, 4.0
_SPEED_FINE, _SPEED_FLOOR = 0.75, 0.6
_MEMORY_FINE, _MEMORY_NONE = 0.10, 0.02
_CHECKPOINTS_FINE = 2.0
_RELAYED = 0.8
_NEW = 0.7
_FADE = 0.99


@dataclass(frozen=True)
class Vitals:
    """What is measured of a node.

    Attributes:
        beat_age_seconds: since its last sign of life.
        speed: its smoothed tokens per second against its own best, from 0 to 1.
        memory_free: the share of the memory that it may use that is free, from 0 to 1.
        disk_checkpoints: how many more checkpoints its disk has room for.
        path: the worst of the paths between it and the others.
    """

    beat_age_seconds: float = 0.0
    speed: float = 1.0
    memory_free: float = 1.0
    disk_checkpoints: float = 1000.0
    path: Path = "direct"


def health_of(vitals: Vitals) -> float:
    """The node's health from 0 to 1 (see the module's formula)."""
    return (
        _falling(vitals.beat_age_seconds / BEAT_SECONDS, _BEATS_FINE, _BEATS_DEAD)
        * (_SPEED_FLOOR + (1 - _SPEED_FLOOR) * min(1.0, max(0.0, vitals.speed / _SPEED_FINE)))
        * _falling(vitals.memory_free, _MEMORY_FINE, _MEMORY_NONE)
        * _falling(vitals.disk_checkpoints, _CHECKPOINTS_FINE, 0.0)
        * (_RELAYED if vitals.path == "relayed" else 1.0)
    )


def takes_part(health: float) -> bool:
    """Whether a node of this health trains and averages."""
    return health > TAKES_PART


def participants(healths: Mapping[str, float], live: Collection[str]) -> frozenset[str]:
    """The live nodes that take part."""
    return frozenset(node for node in live if takes_part(healths.get(node, 0.0)))


def may_decide(taking_part: Collection[str], fleet: Collection[str]) -> bool:
    """Whether so many take part that the fleet may go on: two thirds of all its nodes."""
    return 3 * len(set(taking_part) & set(fleet)) >= 2 * len(set(fleet)) > 0


@dataclass(frozen=True)
class Speed:
    """A node's tokens per second, smoothed over rounds.

    Attributes:
        smoothed: 0 before the first measurement.
        best: the highest that it was, fading.
    """

    smoothed: float = 0.0
    best: float = 0.0

    def after(self, tokens_per_second: float) -> Speed:
        """With one more round's measurement; rounds without work are not measured."""
        if tokens_per_second <= 0:
            return self
        known = self.smoothed or tokens_per_second
        smoothed = _NEW * tokens_per_second + (1 - _NEW) * known
        return Speed(smoothed, max(smoothed, self.best * _FADE))

    @property
    def of_best(self) -> float:
        """Against its own best, from 0 to 1; 1 before the first measurement."""
        return self.smoothed / self.best if self.best else 1.0


def work_shares(speeds: Mapping[str, float], healths: Mapping[str, float]) -> dict[str, float]:
    """Each node's share of a round's work; the shares add up to 1, and who does not take part has 0.

    Args:
        speeds: smoothed tokens per second.
        healths: of the same nodes; a node that is missing counts as dead.
    """
    work = {
        node: speed * health if takes_part(health := healths.get(node, 0.0)) else 0.0
        for node, speed in speeds.items()
    }
    total = sum(work.values())
    return {node: each / total if total > 0 else 0.0 for node, each in work.items()}


def _falling(value: float, fine: float, none: float) -> float:
    """1 at `fine` and beyond, 0 at `none` and beyond, a straight line in between."""
    return min(1.0, max(0.0, (value - none) / (fine - none)))
