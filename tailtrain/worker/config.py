"""A node's configuration: worker.json as frozen values.

Each field is checked for presence, type and range, and a field that nobody knows is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.errors import WorkerError
from tailtrain.worker.config_reader import Section
from tailtrain.worker.coordination_config import CoordinationConfig, read_coordination
from tailtrain.worker.data_config import (
    NAME,
    DomainConfig,
    StorageConfig,
    read_domain,
    read_storage,
)

if TYPE_CHECKING:
    from pathlib import Path

_RUN_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the transformer. `width` is divisible by `heads`; `context` is in bytes."""

    layers: int
    width: int
    heads: int
    context: int


@dataclass(frozen=True)
class TrainingConfig:
    """How one node trains and when the run ends. Times are in seconds, `target_tokens` counts the fleet's.

    `steps_per_round` is 0 where rounds go by the clock; otherwise the run is deterministic. With
    `health_weighted` a node of health h trains h of a round's time (eneGossip).
    """

    batch_size: int
    learning_rate: float
    weight_decay: float
    warmup_steps: int
    round_seconds: float
    averaging_timeout_seconds: float
    target_tokens: int
    outer_learning_rate: float
    outer_momentum: float
    start_timeout_seconds: float
    keep_checkpoints: int
    fault_tolerance: bool
    checkpoint_rounds: int
    steps_per_round: int
    health_weighted: bool


@dataclass(frozen=True)
class WorkerConfig:
    """All of worker.json, and `sha256` of the file that it was read from."""

    run_id: str
    node: str
    role: str
    seed: int
    device: str
    threads: int
    usable_cores: float
    state_dir: Path
    model: ModelConfig
    training: TrainingConfig
    coordination: CoordinationConfig
    data: tuple[DomainConfig, ...]
    storage: StorageConfig
    validation_bytes_per_domain: int
    sha256: str

    @property
    def is_primary(self) -> bool:
        """Whether this node holds the round clock and writes the final model."""
        return self.role == "primary"

    @property
    def primary(self) -> str:
        """The node that is the primary."""
        return next((peer.node for peer in self.coordination.peers if peer.role == "primary"), self.node)

    @property
    def centralized(self) -> bool:
        """Whether the primary alone reduces."""
        return self.coordination.protocol == "centralized"

    @property
    def gossips(self) -> bool:
        """Whether Serf holds the membership, and pairs average between the rounds of all."""
        return self.coordination.protocol == "eneGossip"

    @property
    def sharded(self) -> bool:
        """Whether each node has a share of the data of its own; otherwise every node has all of it."""
        return any(domain.others for domain in self.data)

    @property
    def run_dir(self) -> Path:
        """Where this run keeps its files on this node."""
        return self.state_dir / "runs" / self.run_id

    @property
    def chunk_dir(self) -> Path:
        """Where this node keeps chunks, of all runs."""
        return self.state_dir / "chunks"

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the run, this one included, in order of name."""
        return tuple(sorted([self.node, *(peer.node for peer in self.coordination.peers)]))


def load_config(path: Path) -> WorkerConfig:
    """Read and check a worker.json.

    Raises:
        WorkerError: the file is missing, is not JSON, or a field is missing, unknown or unacceptable.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkerError(
            "cannot read the worker's configuration", field=str(path), found=error.strerror
        ) from error
    try:
        raw = json.loads(content)
    except ValueError as error:
        raise WorkerError(
            "the worker's configuration is not JSON", field=str(path), found=str(error)
        ) from error
    return _worker(Section(path.name, "", raw), hashlib.sha256(content).hexdigest())


def _worker(top: Section, sha256: str) -> WorkerConfig:
    validation = top.section("validation")
    config = WorkerConfig(
        run_id=top.text("run_id", _RUN_ID, "16 hexadecimal digits"),
        node=top.text("node", NAME, "a host name"),
        role=top.one_of("role", "primary", "compute"),
        seed=top.integer("seed", 0, 2**63 - 1),
        device=top.one_of("device", "cpu", "cuda"),
        threads=top.integer("threads", 1, 4096),
        usable_cores=top.number("usable_cores", above=0.0),
        state_dir=top.absolute_path("state_dir"),
        model=_model(top.section("model")),
        training=_training(top.section("training")),
        coordination=read_coordination(top.section("coordination")),
        data=tuple(read_domain(section) for section in top.sections("data")),
        storage=read_storage(top.section("storage")),
        validation_bytes_per_domain=validation.integer("bytes_per_domain", 1),
        sha256=sha256,
    )
    validation.end()
    top.end()
    _check_fleet(top, config)
    return config


def _check_fleet(top: Section, config: WorkerConfig) -> None:
    """What no single field can say: names, ids and roles across nodes and domains."""
    peers = config.coordination.peers
    for what, values in (
        ("coordination.peers", [config.node, *(peer.node for peer in peers)]),
        ("coordination.peers", [peer.peer_id for peer in peers]),
        ("data", [domain.domain for domain in config.data]),
    ):
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise top.bad(what, twice[0], "each only once")
    primaries = [peer.node for peer in peers if peer.role == "primary"]
    if len(primaries) + config.is_primary != 1:
        raise top.bad("coordination.peers", primaries, "exactly one primary among this node and its peers")
    if config.coordination.quorum > len(config.nodes):
        raise top.bad("coordination.quorum", config.coordination.quorum, f"at most {len(config.nodes)}")
    if strange := sorted(set(config.coordination.reducers) - set(config.nodes)):
        raise top.bad("coordination.reducers", strange[0], "nodes of the run")
    _check_data(top, config)


def _check_data(top: Section, config: WorkerConfig) -> None:
    """Domains, who shares them, and that nothing is both trained on and held out."""
    peers = config.coordination.peers
    if not config.data:
        raise top.bad("data", [], "at least one domain")
    heldout = {chunk for domain in config.data for chunk in domain.heldout}
    for index, domain in enumerate(config.data):
        if strange := sorted(set(domain.others) - {peer.node for peer in peers}):
            raise top.bad(f"data[{index}].others", strange[0], "a node that is in coordination.peers")
        for owned in domain.ranges:
            if owned.chunk in heldout:
                raise top.bad("data", owned.chunk, "no chunk both trained on and held out")


def _model(section: Section) -> ModelConfig:
    model = ModelConfig(
        layers=section.integer("layers", 1, 256),
        width=section.integer("width", 8, 16384),
        heads=section.integer("heads", 1, 256),
        context=section.integer("context", 8, 65536),
    )
    section.end()
    if model.width % model.heads:
        raise section.bad("heads", model.heads, f"a divisor of the width {model.width}")
    return model


def _training(section: Section) -> TrainingConfig:
    training = TrainingConfig(
        batch_size=section.integer("batch_size", 1, 65536),
        learning_rate=section.number("learning_rate", above=0.0),
        weight_decay=section.number("weight_decay"),
        warmup_steps=section.integer("warmup_steps", 0),
        round_seconds=section.number("round_seconds", above=0.0),
        averaging_timeout_seconds=section.number("averaging_timeout_seconds", low=5.0),
        target_tokens=section.integer("target_tokens", 1),
        outer_learning_rate=section.number("outer_learning_rate", above=0.0),
        outer_momentum=section.number("outer_momentum"),
        start_timeout_seconds=section.number("start_timeout_seconds", above=0.0),
        keep_checkpoints=section.integer("keep_checkpoints", 2),
        fault_tolerance=section.flag("fault_tolerance"),
        checkpoint_rounds=section.integer("checkpoint_rounds", 1),
        steps_per_round=section.integer("steps_per_round", 0),
        health_weighted=section.flag("health_weighted"),
    )
    section.end()
    if training.outer_momentum >= 1.0:
        raise section.bad("outer_momentum", training.outer_momentum, "a number from 0 to below 1")
    return training
