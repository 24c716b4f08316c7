"""What `sharded.json` says: the same on all nodes, so that all make the same cut without asking."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tailtrain.partition import Costs, StageNode
from tailtrain.planning import layout
from tailtrain.planning.division.planned import Division
from tailtrain.planning.drift import sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.planning.node_config import NodeLimits, Peer
    from tailtrain.planning.parts import FileChange
    from tailtrain.planning.settings import Settings

CHECKPOINT_NODES = 2
"""How many nodes write each checkpoint: with one of them nothing is lost."""


def sharded_document(
    settings: Settings, division: Division, peers: Sequence[Peer], quorum: int
) -> dict[str, object]:
    """The document of the strategies that divide the model.

    Args:
        settings: what to train, and how.
        division: the nodes in the order of their stages, and what layers cost.
        peers: where each of them is.
        quorum: how many it takes to train.
    """
    addresses = {peer.node: peer.address for peer in peers}
    speeds = {node.name: node.speed for node in division.nodes}
    # After the primary the fastest holds the rendezvous.
    order = sorted(peers, key=lambda peer: (peer.role != "primary", -speeds[peer.node], peer.node))
    return {
        "worker_config": layout.CONFIG,
        "strategy": settings.training.distribution_strategy.value,
        "port": settings.worker_port,
        "beacon_port": settings.engine.beacon_port,
        "min_nodes": quorum,
        "microbatches": division.microbatches,
        "checkpoint_steps": settings.engine.checkpoint_steps,
        "collective_timeout_seconds": settings.loop.averaging_timeout_seconds,
        "checkpoint_nodes": CHECKPOINT_NODES,
        "rendezvous_order": [peer.node for peer in order],
        "nodes": [
            {
                "node": node.name,
                "address": addresses[node.name],
                "speed": node.speed,
                "memory_bytes": node.memory_bytes,
            }
            for node in division.nodes
        ],
        "costs": asdict(division.costs),
    }


def sharded_rehearsal(settings: Settings, peers: Sequence[Peer]) -> dict[str, object]:
    """A document of the same form, for trying the template before any host is asked."""
    nodes = tuple(StageNode(peer.node, 1.0, 1) for peer in peers)
    costs = Costs(1.0, 1.0, 1, 1, 1, 1, 1, 1, 1)
    division = Division(nodes, (), (), costs, 1, 0.0, None, 1, 1.0, 1.0, 1, links_known=False)
    return sharded_document(settings, division, peers, 1)


def config_digest(texts: Sequence[FileChange]) -> str:
    """What a worker says that it was started with: its configuration's hash, of both files if it has two.

    The worker makes the same of them (`worker.sharded.config`).
    """
    hashes = {change.path: sha256_of(change.after) for change in texts}
    worker, sharded = hashes[layout.CONFIG], hashes.get(layout.SHARDED_CONFIG)
    return worker if sharded is None else sha256_of(f"{worker} {sharded}")


def on_cpu(limits: NodeLimits, notes: tuple[str, ...]) -> tuple[NodeLimits, tuple[str, ...]]:
    """The limits of a node whose part of the model is on its processor, and what is to be said of that."""
    if limits.device == "cpu":
        return limits, notes
    return replace(limits, device="cpu"), (
        *notes,
        "its GPU is not used: a divided model trains on CPUs",
    )
