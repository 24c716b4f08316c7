"""topology.json on the primary: the topology that a run was first planned with, and goes on with.

Measurements and paths vary from plan to plan; what they would make of the same run now is not asked, or a run
that is under way would be dealt out anew each time. Only another run, or other nodes, get another topology.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from tailtrain.planning.topology.offers import Prediction, Role, Topology

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_ROUNDING = 1e-6
_MOST_SECONDS = 1e6


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """The file's form."""

    run: str
    topology: Topology


def topology_text(run_id: str, topology: Topology) -> str:
    """The file for a run; the same topology always gives the same text."""
    made = msgspec.json.encode(_Kept(run_id, topology), order="sorted")
    return msgspec.json.format(made, indent=1).decode() + "\n"


def kept_topology(text: str | None, run_id: str, nodes: Collection[str]) -> Topology | None:
    """The topology that a primary keeps, if it is of this run and of these nodes.

    A file that somebody changed is taken where it is still a topology, and counts as none where not.

    Args:
        text: the file, None where there is none.
        run_id: of the run at hand.
        nodes: all nodes of the fleet.
    """
    try:
        kept = msgspec.json.decode(text or "", type=_Kept)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return kept.topology if kept.run == run_id and _is_sound(kept.topology, set(nodes)) else None


def _is_sound(topology: Topology, nodes: set[str]) -> bool:
    """Whether it speaks of these nodes, and its numbers are such as the optimizer gives."""
    train = {node for node, role in topology.roles.items() if role is Role.TRAINS}
    return (
        all(set(each) == nodes for each in (topology.roles, topology.shares, topology.reducers))
        and set(topology.speeds) == nodes
        and set(topology.steps) == train
        and set(topology.reasons) <= nodes
        and all(steps >= 1 for steps in topology.steps.values())
        and _adds_up(topology.shares)
        and _adds_up(topology.reducers)
        and topology.all_each >= 1
        and all(map(_is_predicted, (topology.prediction, topology.by_cores, topology.equal)))
        and 0 <= topology.longest_averaging <= _MOST_SECONDS
        and topology.fastest > 0
    )


def _adds_up(parts: Mapping[str, float]) -> bool:
    return min(parts.values()) >= 0 and math.isclose(sum(parts.values()), 1.0, abs_tol=_ROUNDING)


def _is_predicted(said: Prediction) -> bool:
    return (
        0 < said.training_seconds <= _MOST_SECONDS
        and 0 <= said.averaging_seconds <= _MOST_SECONDS
        and said.tokens > 0
        and said.ideal_tokens_per_second > 0
    )
