"""What is to be trained, as group_data declares it, checked before anything else happens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tailtrain.errors import DeclarationError
from tailtrain.planning.engine_settings import EngineSettings, engine_settings
from tailtrain.planning.ports import require_distinct_ports
from tailtrain.planning.settings_errors import unknown, wrong
from tailtrain.planning.settings_numbers import number_section
from tailtrain.planning.storage_settings import StorageSettings, storage_settings
from tailtrain.spec import (
    CoordinationProtocol,
    DistributionStrategy,
    StorageBackend,
    TrainingConfiguration,
    validate_training,
)
from tailtrain.spec.problems import Problems


@dataclass(frozen=True)
class ModelSettings:
    """Sizes of the byte-level transformer."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 128


@dataclass(frozen=True)
class LoopSettings:
    """The training loop: local rounds of equal seconds, then an averaging weighted by tokens.

    `target_tokens` counts the fleet's committed tokens (bytes of text); seconds are wall-clock seconds, and
    `round_seconds` 0 leaves a round's length to the topology optimizer.
    `outer_learning_rate` 1 with `outer_momentum` 0 is the plain weighted mean; other values are DiLoCo's
    outer Nesterov step (arXiv 2311.08105).
    """

    target_tokens: int = 1_000_000
    round_seconds: float = 60.0
    batch_size: int = 8
    learning_rate: float = 0.003
    weight_decay: float = 0.1
    warmup_steps: int = 20
    seed: int = 17
    averaging_timeout_seconds: float = 30.0
    outer_learning_rate: float = 1.0
    outer_momentum: float = 0.0
    start_timeout_seconds: float = 180.0
    keep_checkpoints: int = 2


@dataclass(frozen=True)
class Settings:
    """Everything that group_data says about a run."""

    training: TrainingConfiguration
    datasets: tuple[tuple[str, str], ...]
    heldout_fraction: float
    model: ModelSettings
    loop: LoopSettings
    validation_bytes_per_domain: int
    worker_port: int
    chunk_port: int
    keep_runs: int
    replicas: int
    storage: StorageSettings
    engine: EngineSettings
    wheels: str | None
    package_index: str | None

    @property
    def data_parallel(self) -> bool:
        """Whether every node trains the whole model."""
        return self.training.distribution_strategy is DistributionStrategy.DATA_PARALLEL

    @property
    def shares_data(self) -> bool:
        """Whether each node has a share of the data; where the model is divided, all read the same."""
        return self.training.data_sharding and self.data_parallel

    @property
    def gossips(self) -> bool:
        """Whether Serf holds the membership."""
        return self.training.coordination_protocol is CoordinationProtocol.ENE_GOSSIP

    def as_json(self) -> dict[str, object]:
        """The part that decides what a run is, as plain values."""
        return {
            "model": asdict(self.model),
            "training": asdict(self.loop),
            "validation_bytes_per_domain": self.validation_bytes_per_domain,
            "strategy": self.training.distribution_strategy.value,
            "protocol": self.training.coordination_protocol.value,
            "data_sharding": self.shares_data,
            "engine": asdict(self.engine),
        }


# name -> (default, what is expected)
_PLAIN: dict[str, tuple[object, str]] = {
    "distribution_strategy": ("dataParallel", "a strategy of the specification"),
    "coordination_protocol": ("eneGossip", "a protocol of the specification"),
    "storage_backend": ("googleDriveTopological", "a backend of the specification"),
    "resource_allocation": ("swarm_topology_optimizer", "a method of the specification"),
    "load_balancing": ("health_weighted", "a method of the specification"),
    "data_sharding": (True, "True or False"),
    "fault_tolerance": (True, "True or False"),
    "datasets": ({}, "a dictionary of domain to parquet file, at least one"),
    "heldout_fraction": (0.02, "a number from 0 to 0.5"),
    "model": ({}, "a dictionary"),
    "training": ({}, "a dictionary"),
    "validation_bytes_per_domain": (65_536, "a whole number above 0"),
    "worker_port": (45_001, "a port from 1024 to 65535"),
    "chunk_port": (45_002, "a port from 1024 to 65535, another than worker_port"),
    "keep_runs": (2, "a whole number from 0 to 1000"),
    "replicas": (2, "a whole number from 1 to 1000"),
    "storage": ({}, "a dictionary"),
    "engine": ({}, "a dictionary"),
    "wheels": (None, "a folder of wheels, or None"),
    "package_index": (None, "the address of a package index, http(s)://..., or None"),
}
SETTINGS = frozenset(_PLAIN)
"""The names that group data may set."""

MOST_HELD_OUT = 0.5
MOST_KEPT_RUNS = 1000
MOST_REPLICAS = 1000
UNPRIVILEGED_PORTS = range(1024, 65536)

_OWN_PREFIXES = ("_", "ssh_", "tailscale_")
_DOMAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_PATH = re.compile(r"[^\0]+")
_INDEX = re.compile(r"(https?|file)://[^\s\0]+")


def parse_settings(data: Mapping[str, object]) -> Settings:
    """Read group data into settings.

    Raises:
        DeclarationError: for unknown, missing or wrong values, naming each.
    """
    problems = Problems()
    for name in data:
        if name not in _PLAIN and not name.startswith(_OWN_PREFIXES):
            problems.found.append(unknown(name, name, _PLAIN, "Start its name with _ if it is your own"))
    get = {name: data.get(name, default) for name, (default, _) in _PLAIN.items()}
    parts: dict[str, Callable[[], object]] = {
        "training": lambda: _training(get),
        "datasets": lambda: _datasets(get["datasets"]),
        "heldout_fraction": lambda: float(
            _number(get, "heldout_fraction", lambda value: 0 <= value <= MOST_HELD_OUT)
        ),
        "model": lambda: _model(get["model"]),
        "loop": lambda: number_section(LoopSettings, "training", get["training"]),
        "validation_bytes_per_domain": lambda: _number(
            get, "validation_bytes_per_domain", lambda value: value >= 1, whole=True
        ),
        "worker_port": lambda: _number(
            get, "worker_port", lambda value: value in UNPRIVILEGED_PORTS, whole=True
        ),
        "chunk_port": lambda: _number(
            get,
            "chunk_port",
            lambda value: value in UNPRIVILEGED_PORTS and value != get["worker_port"],
            whole=True,
        ),
        "keep_runs": lambda: _number(
            get, "keep_runs", lambda value: 0 <= value <= MOST_KEPT_RUNS, whole=True
        ),
        "replicas": lambda: _number(get, "replicas", lambda value: 1 <= value <= MOST_REPLICAS, whole=True),
        "storage": lambda: storage_settings(get["storage"]),
        "engine": lambda: engine_settings(get["engine"]),
        "wheels": lambda: _text_or_none(get, "wheels", _PATH),
        "package_index": lambda: _text_or_none(get, "package_index", _INDEX),
    }
    values: dict[str, Any] = {}
    for name, read in parts.items():
        with problems.gathered():
            values[name] = read()
    problems.raise_if_any()
    settings = Settings(**values)
    require_distinct_ports(settings)
    return settings


def _training(get: Mapping[str, Any]) -> TrainingConfiguration:
    """How to train, in the specification's words; what this version can carry out is asked elsewhere."""
    words = {
        name: get[name]
        for name in (
            *("distribution_strategy", "coordination_protocol", "storage_backend"),
            *("resource_allocation", "data_sharding", "fault_tolerance", "load_balancing"),
        )
    }
    validate_training(TrainingConfiguration(**words), name_of=lambda attribute: f"group_data: {attribute}")
    words["distribution_strategy"] = DistributionStrategy(words["distribution_strategy"])
    words["coordination_protocol"] = CoordinationProtocol(words["coordination_protocol"])
    words["storage_backend"] = StorageBackend(words["storage_backend"])
    return TrainingConfiguration(**words)


def _model(value: object) -> ModelSettings:
    model = number_section(ModelSettings, "model", value)
    if model.width % model.heads:
        raise wrong("model.width", model.width, f"a multiple of heads ({model.heads})")
    return model


def _text_or_none(get: Mapping[str, object], name: str, form: re.Pattern[str]) -> str | None:
    value = get[name]
    if value is not None and (not isinstance(value, str) or not form.fullmatch(value)):
        raise wrong(name, value, _PLAIN[name][1])
    return value


def _number(
    get: Mapping[str, object], name: str, accept: Callable[[float], bool], *, whole: bool = False
) -> float:
    value = get[name]
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not accept(value):
        raise wrong(name, value, _PLAIN[name][1])
    return value


def _datasets(value: object) -> tuple[tuple[str, str], ...]:
    expected = _PLAIN["datasets"][1]
    if value == {}:
        raise DeclarationError(
            "nothing to train on is named",
            field="group_data: datasets",
            expected=expected,
            fix="Set it in group_data/all.py",
        )
    if not isinstance(value, Mapping) or not value:
        raise wrong("datasets", value, expected)
    for domain, file in value.items():
        if not isinstance(domain, str) or not _DOMAIN.fullmatch(domain):
            raise wrong("datasets", domain, "a domain name of letters, digits and _, a letter first")
        if not isinstance(file, str) or not _PATH.fullmatch(file):
            raise wrong(f"datasets.{domain}", file, "the path of a parquet file")
    return tuple(value.items())
