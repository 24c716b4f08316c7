"""The specification's own values, as Lean computes them, floors included.

They are for comparison, for tests and for reading: `assign_all_nodes` loses records and weight to its floors,
and a fleet of ours is assigned by `tailtrain.planning.shares` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.spec.fixed_point import Q16_16
from tailtrain.spec.pipeline import guarantees, pipeline
from tailtrain.spec.structures import (
    MASKED_ADDRESS,
    CoordinationProtocol,
    DatasetInfo,
    DistributedTrainingConfig,
    DistributionStrategy,
    NetworkNode,
    NetworkResources,
    NodeAssignment,
    NodeRole,
    StorageBackend,
    TrainingConfiguration,
)
from tailtrain.spec.validation import HEALTH_WEIGHTED, SWARM_TOPOLOGY_OPTIMIZER

if TYPE_CHECKING:
    from collections.abc import Sequence

QFOX = NetworkNode("qfox", MASKED_ADDRESS, 16, 32, has_gpu=True, role=NodeRole.PRIMARY, storage_gb=800)


def _compute(hostname: str, cores: int, ram_gb: int, storage_gb: int) -> NetworkNode:
    return NetworkNode(
        hostname, MASKED_ADDRESS, cores, ram_gb, has_gpu=False, role=NodeRole.COMPUTE, storage_gb=storage_gb
    )


ARCHITECT = _compute("architect", 8, 16, 500)
JUDGE = _compute("judge", 4, 8, 200)
AWS_NODE = _compute("ip-172-31-25-81", 2, 4, 100)
NETCUP_ROUTER = _compute("netcup-router", 4, 8, 100)
RACKNERD_NODE = _compute("racknerd-510bd9c", 2, 4, 100)

ALL_NODES = (QFOX, ARCHITECT, JUDGE, AWS_NODE, NETCUP_ROUTER, RACKNERD_NODE)

DEFAULT_TRAINING = TrainingConfiguration(
    distribution_strategy=DistributionStrategy.DATA_PARALLEL,
    coordination_protocol=CoordinationProtocol.ENE_GOSSIP,
    storage_backend=StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL,
    resource_allocation=SWARM_TOPOLOGY_OPTIMIZER,
    data_sharding=True,
    fault_tolerance=True,
    load_balancing=HEALTH_WEIGHTED,
)

NATURAL_LANGUAGE_DATASET = DatasetInfo("training_dataset_20260423_121149.parquet", 137, 65318, 6, 10886)
CODING_LANGUAGE_DATASET = DatasetInfo("coding_training_dataset_20260423_122513.parquet", 11, 2776, 6, 462)


def calculate_assignment(
    node: NetworkNode, total_cores: int, natural_language_records: int, coding_records: int
) -> NodeAssignment:
    """The specification's `calculateAssignment`: floors by cores, 0 where no node has any."""

    def floor_share(records: int) -> int:
        return records * node.cores // total_cores if total_cores else 0

    return NodeAssignment(
        weight=Q16_16.of_nat(node.cores) / Q16_16.of_nat(total_cores),
        cores_allocated=node.cores,
        ram_allocated_gb=node.ram_gb,
        gpu_available=node.has_gpu,
        natural_language_shard_size=floor_share(natural_language_records),
        coding_language_shard_size=floor_share(coding_records),
    )


def assign_all_nodes(nodes: Sequence[NetworkNode]) -> tuple[tuple[str, NodeAssignment], ...]:
    """The specification's `assignAllNodes`, over its own two data sets."""
    total_cores = sum(node.cores for node in nodes)
    return tuple(
        (
            node.hostname,
            calculate_assignment(
                node, total_cores, NATURAL_LANGUAGE_DATASET.records, CODING_LANGUAGE_DATASET.records
            ),
        )
        for node in nodes
    )


def lean_default_config() -> DistributedTrainingConfig:
    """The specification's `defaultConfig`, value for value."""
    resources = NetworkResources.from_nodes(ALL_NODES)
    return DistributedTrainingConfig(
        timestamp="2026-04-23T13:20:43Z",
        network_topology=ALL_NODES,
        total_resources=resources,
        training_configuration=DEFAULT_TRAINING,
        node_assignments=assign_all_nodes(ALL_NODES),
        data_distribution=(NATURAL_LANGUAGE_DATASET, CODING_LANGUAGE_DATASET),
        training_pipeline=pipeline(QFOX.hostname, DEFAULT_TRAINING.storage_backend),
        guarantees=guarantees(resources, DEFAULT_TRAINING),
    )
