"""sharded.json as frozen values: what this engine needs beside worker.json, which it names.

    {"worker_config": "/etc/tailtrain/worker.json", "strategy": "pipelineParallel", "port": 45003,
     "beacon_port": 45004, "min_nodes": 2, "microbatches": 4, "checkpoint_steps": 50,
     "collective_timeout_seconds": 30, "checkpoint_nodes": 2, "rendezvous_order": ["qfox", ...],
     "nodes": [{"node": "qfox", "address": "100.64.0.2", "speed": 5000.0, "memory_bytes": 8589934592}, ...],
     "costs": {the fields of tailtrain.partition.Costs}}

`nodes` are all nodes of the run in the order of their stages, this one included; it is the same on all, but
for `worker_config`. Speeds are in tokens per second of the whole model.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Literal, cast

from tailtrain.errors import WorkerError
from tailtrain.partition import Costs, StageNode
from tailtrain.worker.config import WorkerConfig, load_config
from tailtrain.worker.config_reader import Section
from tailtrain.worker.files import canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Strategy = Literal["pipelineParallel", "modelParallel"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LAST_PORT = 65535


@dataclass(frozen=True)
class ShardedNode:
    """A node of the run: where it listens, and what the cut takes it for."""

    node: str
    address: str
    speed: float
    memory_bytes: int


@dataclass(frozen=True)
class ShardedConfig:
    """All of sharded.json.

    Attributes:
        worker: this node's worker.json.
        strategy: how the model is divided.
        port: where the rendezvous listens, on the node that holds it.
        beacon_port: where each node's supervisor says that it is alive.
        min_nodes: with fewer nodes training waits.
        microbatches: of a step.
        checkpoint_steps: steps between checkpoints.
        collective_timeout_seconds: after this long without a word from a peer, it counts as lost.
        checkpoint_nodes: how many nodes write each checkpoint.
        rendezvous_order: who holds the rendezvous: the first of these that lives.
        nodes: all nodes, in the order of their stages.
        costs: what layers cost.
        sha256: of both files, by which a deploy knows what a worker was started with.
    """

    worker: WorkerConfig
    strategy: Strategy
    port: int
    beacon_port: int
    min_nodes: int
    microbatches: int
    checkpoint_steps: int
    collective_timeout_seconds: float
    checkpoint_nodes: int
    rendezvous_order: tuple[str, ...]
    nodes: tuple[ShardedNode, ...]
    costs: Costs
    sha256: str

    @property
    def address(self) -> str:
        """This node's address."""
        return self.address_of(self.worker.node)

    def address_of(self, node: str) -> str:
        """A node's address."""
        return next(known.address for known in self.nodes if known.node == node)

    def candidates(self, names: Sequence[str]) -> list[StageNode]:
        """These nodes as the cut sees them, in the order of their stages."""
        return [
            StageNode(known.node, known.speed, known.memory_bytes)
            for known in self.nodes
            if known.node in names
        ]

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a checkpoint: weights and moments, three of the six that a layer's bytes are."""
        costs = self.costs
        return (self.worker.model.layers * costs.layer_bytes + costs.first_bytes + costs.last_bytes) // 2

    @property
    def tokens_per_step(self) -> int:
        """Bytes of text that one step trains on."""
        return self.worker.training.batch_size * self.worker.model.context

    @property
    def total_steps(self) -> int:
        """Steps until the run's target is reached."""
        return -(-self.worker.training.target_tokens // self.tokens_per_step)

    @property
    def digest(self) -> str:
        """What all nodes must agree on before they train together."""
        worker = self.worker
        shared = {
            "run_id": worker.run_id,
            "seed": worker.seed,
            "data": [
                [domain.domain, domain.manifest, [asdict(own) for own in domain.ranges]]
                for domain in worker.data
            ],
            "model": asdict(worker.model),
            "target_tokens": worker.training.target_tokens,
            "batch_size": worker.training.batch_size,
            "strategy": self.strategy,
            "microbatches": self.microbatches,
            "checkpoint_steps": self.checkpoint_steps,
            "checkpoint_nodes": self.checkpoint_nodes,
            "nodes": [asdict(node) for node in self.nodes],
            "costs": asdict(self.costs),
        }
        return hashlib.sha256(canonical_json(shared)).hexdigest()


def load_sharded(path: Path) -> ShardedConfig:
    """Read and check a sharded.json and the worker.json that it names.

    Raises:
        WorkerError: a file is missing or not JSON, or a field is missing, unknown or unacceptable.
    """
    try:
        content = path.read_bytes()
        raw = json.loads(content)
    except OSError as error:
        raise WorkerError("cannot read the configuration", field=str(path), found=error.strerror) from error
    except ValueError as error:
        raise WorkerError("the configuration is not JSON", field=str(path), found=str(error)) from error
    top = Section(path.name, "", raw)
    worker = load_config(top.absolute_path("worker_config"))
    both = f"{worker.sha256} {hashlib.sha256(content).hexdigest()}"
    config = ShardedConfig(
        worker=worker,
        strategy=cast("Strategy", top.one_of("strategy", "pipelineParallel", "modelParallel")),
        port=top.integer("port", 1, _LAST_PORT),
        beacon_port=top.integer("beacon_port", 1, _LAST_PORT),
        min_nodes=top.integer("min_nodes", 1),
        microbatches=top.integer("microbatches", 1),
        checkpoint_steps=top.integer("checkpoint_steps", 1),
        collective_timeout_seconds=top.number("collective_timeout_seconds", above=0.0),
        checkpoint_nodes=top.integer("checkpoint_nodes", 1),
        rendezvous_order=tuple(_names(top, "rendezvous_order")),
        nodes=tuple(_node(section) for section in top.sections("nodes")),
        costs=_costs(top.section("costs")),
        sha256=hashlib.sha256(both.encode()).hexdigest(),
    )
    top.end()
    _check(top, config)
    return config


def _check(top: Section, config: ShardedConfig) -> None:
    """What no single field can say."""
    names = [node.node for node in config.nodes]
    if len(set(names)) != len(names):
        raise top.bad("nodes", names, "each only once")
    if config.worker.node not in names:
        raise top.bad("nodes", names, f"this node, {config.worker.node}, among them")
    if not config.rendezvous_order or set(config.rendezvous_order) - set(names):
        raise top.bad("rendezvous_order", list(config.rendezvous_order), "nodes of the run, at least one")
    if config.min_nodes > len(names):
        raise top.bad("min_nodes", config.min_nodes, f"at most {len(names)}")
    if config.beacon_port == config.port:
        raise top.bad("beacon_port", config.beacon_port, "another port than `port`")
    if config.worker.training.batch_size % config.microbatches:
        raise top.bad(
            "microbatches", config.microbatches, f"a divisor of {config.worker.training.batch_size}"
        )
    if config.worker.sharded:
        raise top.bad("worker_config", config.worker.run_id, "a run in which every node has all of the data")
    heads = config.worker.model.heads
    if config.strategy == "modelParallel" and heads % len(names):
        raise top.bad("nodes", names, f"a number of nodes that divides the {heads} heads")


def _names(section: Section, field: str) -> list[str]:
    names = section.items(field)
    for index, name in enumerate(names):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise section.bad(f"{field}[{index}]", name, "a host name")
    return names


def _node(section: Section) -> ShardedNode:
    node = ShardedNode(
        node=section.text("node", _NAME, "a host name"),
        address=section.address("address"),
        speed=section.number("speed", above=0.0),
        memory_bytes=section.integer("memory_bytes", 1),
    )
    section.end()
    return node


def _costs(section: Section) -> Costs:
    numbers = {"layer_work", "head_work"}
    values = {
        field.name: section.number(field.name) if field.name in numbers else section.integer(field.name, 0)
        for field in fields(Costs)
    }
    section.end()
    return Costs(**values)  # type: ignore[arg-type]  # whole numbers where the fields are
