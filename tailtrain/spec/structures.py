"""The specification's enumerations and structures (sections 1 to 8), as immutable values.

Attribute names are Python's (`ram_gb`), names in JSON are Lean's (`ramGB`): `lean_name` is the one rule
between them. Fields stand in the specification's order. The values check nothing when they are made; a fleet
or a configuration that somebody declared goes through `tailtrain.spec.validation`, JSON through
`tailtrain.spec.lean_json`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from tailtrain.spec.fixed_point import Q16_16

if TYPE_CHECKING:
    from collections.abc import Iterable

MASKED_ADDRESS = "100.x.x.x"
"""What stands for a tailnet address that is not known or not to be shown."""

_ABBREVIATIONS = frozenset({"gb", "gpu", "ip", "mb", "ram"})

Nat = Annotated[int, msgspec.Meta(ge=0)]
"""Lean's natural numbers: whole, not negative, of any size."""


def lean_name(attribute: str) -> str:
    """The specification's name of an attribute: camel case, abbreviations in capitals (`totalRAMGB`)."""
    first, *rest = attribute.split("_")
    return first + "".join(word.upper() if word in _ABBREVIATIONS else word.capitalize() for word in rest)


class NodeRole(StrEnum):
    """What a node is for: one primary aggregates, the others compute (the primary trains as well)."""

    PRIMARY = "primary"
    COMPUTE = "compute"


class DistributionStrategy(StrEnum):
    """How the training is cut over the nodes: by records, by the width of layers, or by layers."""

    DATA_PARALLEL = "dataParallel"
    MODEL_PARALLEL = "modelParallel"
    PIPELINE_PARALLEL = "pipelineParallel"


class CoordinationProtocol(StrEnum):
    """Who keeps the nodes in step: gossip in groups, the primary, or all together."""

    ENE_GOSSIP = "eneGossip"
    CENTRALIZED = "centralized"
    DECENTRALIZED = "decentralized"


class StorageBackend(StrEnum):
    """Where shards come from: Google Drive, the control machine itself, or an S3 bucket."""

    GOOGLE_DRIVE_TOPOLOGICAL = "googleDriveTopological"
    LOCAL = "local"
    S3 = "s3"


class LeanStructure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=lean_name):
    """A structure of the specification: immutable, hashable, compared by value."""


class NetworkNode(LeanStructure, frozen=True):
    """One machine of the fleet and its hardware as declared (section 1). Gigabytes are whole numbers."""

    hostname: str
    tailscale_ip: str
    cores: Nat
    ram_gb: Nat
    has_gpu: bool
    role: NodeRole
    storage_gb: Nat


class NetworkResources(LeanStructure, frozen=True):
    """What all nodes have together (section 2)."""

    total_nodes: Nat
    total_cores: Nat
    total_ram_gb: Nat
    total_storage_gb: Nat
    gpu_nodes: Nat

    @classmethod
    def from_nodes(cls, nodes: Iterable[NetworkNode]) -> NetworkResources:
        """The sums over these nodes (`fromNodes`)."""
        counted = tuple(nodes)
        return cls(
            total_nodes=len(counted),
            total_cores=sum(node.cores for node in counted),
            total_ram_gb=sum(node.ram_gb for node in counted),
            total_storage_gb=sum(node.storage_gb for node in counted),
            gpu_nodes=sum(node.has_gpu for node in counted),
        )


class TrainingConfiguration(LeanStructure, frozen=True):
    """How to train (section 3). The two free texts are names of methods: see `tailtrain.spec.validation`."""

    distribution_strategy: DistributionStrategy
    coordination_protocol: CoordinationProtocol
    storage_backend: StorageBackend
    resource_allocation: str
    data_sharding: bool
    fault_tolerance: bool
    load_balancing: str


class DatasetInfo(LeanStructure, frozen=True):
    """One data set (section 4); `shard_size_records` is for reading: what a node gets is its assignment."""

    file: str
    size_mb: Nat
    records: Nat
    shards: Nat
    shard_size_records: Nat

    @classmethod
    def measured(cls, file: str, *, size_bytes: int, records: int, shards: int) -> DatasetInfo:
        """A data set of that many bytes and records, cut for that many nodes.

        `size_mb` is in megabytes of 10**6 bytes, rounded to the nearest, a half upwards; `shard_size_records`
        is the specification's floor of records over shards (0 where there are no shards).
        """
        return cls(
            file=file,
            size_mb=(size_bytes + 500_000) // 1_000_000,
            records=records,
            shards=shards,
            shard_size_records=records // shards if shards else 0,
        )


class NodeAssignment(LeanStructure, frozen=True):
    """What one node contributes and gets (section 5): weight, limits, records of the two data sets."""

    weight: Q16_16
    cores_allocated: Nat
    ram_allocated_gb: Nat
    gpu_available: bool
    natural_language_shard_size: Nat
    coding_language_shard_size: Nat


class PipelinePhase(LeanStructure, frozen=True):
    """One phase of a training, in words (section 6)."""

    name: str
    action: str
    nodes: str
    parallel: bool


class TrainingGuarantees(LeanStructure, frozen=True):
    """What a training promises, in words (section 7). Each has a measured value in the report of a run."""

    network_utilization: str
    resource_utilization: str
    fault_tolerance: str
    load_balancing: str
    data_availability: str
    coordination: str


class DistributedTrainingConfig(LeanStructure, frozen=True):
    """The whole configuration of a training (section 8); an assignment stands with its host's name."""

    timestamp: str
    network_topology: tuple[NetworkNode, ...]
    total_resources: NetworkResources
    training_configuration: TrainingConfiguration
    node_assignments: tuple[tuple[str, NodeAssignment], ...]
    data_distribution: tuple[DatasetInfo, ...]
    training_pipeline: tuple[PipelinePhase, ...]
    guarantees: TrainingGuarantees
