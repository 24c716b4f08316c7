"""The nodes of a divided model as its cut sees them: how fast they are, and what memory they have.

What a run was begun with stays: the primary keeps it in its `sharded.json`, and what is measured later
changes no plan of that run.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.partition import StageNode
from tailtrain.planning import layout
from tailtrain.planning.carried import run_id_of
from tailtrain.planning.drift import sha256_of
from tailtrain.planning.hardware import GIB, limits_of
from tailtrain.planning.memory import parameters
from tailtrain.planning.observed import Observation
from tailtrain.planning.shares import usable_cores
from tailtrain.planning.topology.offers import first_guess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.actions import Declared
    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.node_config import Peer
    from tailtrain.planning.observed import Observed
    from tailtrain.planning.plan import Material

# A kernel update moves what a machine shows of its memory by a few MiB.
_SAME_MEMORY = 0.98


def stage_nodes(
    declared: Declared,
    peers: Sequence[Peer],
    answers: Mapping[str, Observation],
    *,
    measured: Mapping[str, float],
    kept: Mapping[str, StageNode],
) -> tuple[StageNode, ...]:
    """The nodes that can be named, in the order of the stages.

    Args:
        declared: nodes and settings.
        peers: those that are known.
        answers: of the hosts that answered.
        measured: tokens per second of this model, of nodes that have trained; others are guessed by cores.
        kept: what the run at hand was begun with.
    """
    named, nodes = {node.hostname: node for node in declared.nodes}, []
    begun = kept.keys() == {peer.node for peer in peers}
    for peer in peers:
        node, reserve = named[peer.node], declared.reserves[peer.node]
        memory = (node.ram_gb - reserve.ram_gb) * GIB
        if peer.node in answers:
            with suppress(DeclarationError):  # what is wrong with this host is told in its own plan
                memory = limits_of(node, reserve, answers[peer.node])[0].memory_bytes
        guess = first_guess(usable_cores(node, declared.reserves), parameters(declared.settings.model))
        speed = measured.get(peer.node) or round(guess, 1)
        if begun:
            before = kept[peer.node]
            speed = before.speed
            memory = before.memory_bytes if memory >= _SAME_MEMORY * before.memory_bytes else memory
        nodes.append(StageNode(peer.node, speed, memory))
    return tuple(nodes)


def kept_nodes(primary: Observation | None, run_id: str) -> dict[str, StageNode]:
    """The nodes that this run was begun with, as the primary has them; none where it is not begun.

    A file that was changed since the last deploy counts for nothing.
    """
    if primary is None or primary.receipt is None or primary.receipt.run != run_id:
        return {}
    text = primary.files.get(layout.SHARDED_CONFIG)
    if text is None or sha256_of(text) != primary.receipt.files.get(layout.SHARDED_CONFIG):
        return {}
    try:
        nodes = [
            StageNode(str(each["node"]), float(each["speed"]), int(each["memory_bytes"]))
            for each in json.loads(text)["nodes"]
        ]
    except (ValueError, KeyError, TypeError):
        return {}
    return {node.name: node for node in nodes if node.speed > 0}


def is_to_be_measured(
    declared: Declared, datasets: Sequence[PlannedDataset], material: Material, observed: Observed
) -> bool:
    """Whether a plan needs the round trips between nodes: for a divided model whose run is not begun."""
    if declared.settings.data_parallel:
        return False
    answers = {name: answer for name, answer in observed.items() if isinstance(answer, Observation)}
    run_id = run_id_of(declared.settings, datasets, material, declared.nodes, answers)
    return not kept_nodes(answers.get(declared.primary.hostname), run_id)
