"""The four phases and the six guarantees in words, for a given fleet and training (sections 6 and 7).

For the specification's own fleet and training they are the specification's own sentences; where a training
differs, the sentence says what holds for it instead.
"""

from __future__ import annotations

from types import MappingProxyType

from tailtrain.spec.structures import (
    CoordinationProtocol,
    NetworkResources,
    PipelinePhase,
    StorageBackend,
    TrainingConfiguration,
    TrainingGuarantees,
)
from tailtrain.spec.validation import STATIC

_ROUTES = MappingProxyType(
    {
        StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL: "via Google Drive",
        StorageBackend.LOCAL: "directly over the tailnet",
        StorageBackend.S3: "via S3",
    }
)
_AVAILABILITY = MappingProxyType(
    {
        StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL: (
            "Google Drive topological storage ensures data accessibility from any node"
        ),
        StorageBackend.LOCAL: "Verified copies on the nodes ensure data accessibility from any node",
        StorageBackend.S3: "S3 storage ensures data accessibility from any node",
    }
)
_COORDINATION = MappingProxyType(
    {
        CoordinationProtocol.ENE_GOSSIP: "ENE gossip protocol maintains network state and coordination",
        CoordinationProtocol.CENTRALIZED: "The primary maintains network state and coordination",
        CoordinationProtocol.DECENTRALIZED: "All nodes together maintain network state and coordination",
    }
)


def pipeline(primary: str, backend: StorageBackend) -> tuple[PipelinePhase, ...]:
    """The phases in their order.

    Args:
        primary: host name of the primary, which aggregates.
        backend: where the shards come from.
    """
    return (
        PipelinePhase(
            "Data Distribution",
            f"Distribute parquet shards to all nodes {_ROUTES[backend]}",
            "all",
            parallel=True,
        ),
        PipelinePhase(
            "Distributed Training",
            "Train n-semantic morphic cores using all network resources",
            "all",
            parallel=True,
        ),
        PipelinePhase(
            "Model Aggregation",
            "Aggregate trained models from all nodes",
            f"{primary} (primary)",
            parallel=False,
        ),
        PipelinePhase("Validation", "Validate aggregated model across network", "all", parallel=True),
    )


def guarantees(resources: NetworkResources, training: TrainingConfiguration) -> TrainingGuarantees:
    """What a training with these settings on these resources promises."""
    return TrainingGuarantees(
        network_utilization="100% of all network nodes will be utilized",
        resource_utilization=(
            f"All {resources.total_cores} cores and {resources.total_ram_gb}GB RAM will be used"
        ),
        fault_tolerance=(
            "Training continues even if individual nodes fail"
            if training.fault_tolerance
            else "Training stops, ready to be resumed, if a node fails"
        ),
        load_balancing=(
            "Static load distribution by declared cores"
            if training.load_balancing == STATIC
            else _HEALTH_WEIGHTED[training.coordination_protocol]
        ),
        data_availability=_AVAILABILITY[training.storage_backend],
        coordination=_COORDINATION[training.coordination_protocol],
    )


_HEALTH_WEIGHTED = MappingProxyType(
    {
        CoordinationProtocol.ENE_GOSSIP: "Automatic health-weighted load distribution via ENE",
        CoordinationProtocol.CENTRALIZED: "Automatic health-weighted load distribution via the primary",
        CoordinationProtocol.DECENTRALIZED: "Automatic health-weighted load distribution among all nodes",
    }
)
