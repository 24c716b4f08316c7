"""A declared fleet and training as one value of the specification, for export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.shares import Weight, assign
from tailtrain.spec import (
    DatasetInfo,
    DistributedTrainingConfig,
    NetworkNode,
    NetworkResources,
    NodeReserve,
    NodeRole,
    TrainingConfiguration,
    TrainingGuarantees,
    mask_addresses,
    pipeline,
    validate_nodes,
    validate_training,
)
from tailtrain.spec import guarantees as guarantees_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def build_config(
    nodes: Sequence[NetworkNode],
    training: TrainingConfiguration,
    datasets: Sequence[DatasetInfo | None],
    guarantees: TrainingGuarantees | None = None,
    *,
    timestamp: str,
    weights: Sequence[Weight] | None = None,
    reserves: Mapping[str, NodeReserve] | None = None,
    masked: bool = False,
) -> DistributedTrainingConfig:
    """The whole configuration of a training, its shares exact.

    Args:
        nodes: the fleet, in the inventory's order.
        training: how to train.
        datasets: as `tailtrain.planning.shares.assign`.
        guarantees: what is promised, in words; made from fleet and training where None.
        timestamp: when this configuration was made, in UTC (`2026-04-23T13:20:43Z`); there is no clock here.
        weights: as `tailtrain.planning.shares.assign`.
        reserves: as `tailtrain.planning.shares.assign`.
        masked: writes `100.x.x.x` for every address.

    Raises:
        DeclarationError: the fleet, the training or the weights cannot be.
        UnsupportedError: more data sets than the specification's form has places for.
    """
    validate_nodes(nodes)
    validate_training(training)
    resources = NetworkResources.from_nodes(nodes)
    primary = next(node for node in nodes if node.role == NodeRole.PRIMARY)
    topology = tuple(nodes)
    return DistributedTrainingConfig(
        timestamp=timestamp,
        network_topology=mask_addresses(topology) if masked else topology,
        total_resources=resources,
        training_configuration=training,
        node_assignments=assign(
            nodes, datasets, weights=weights, reserves=reserves, sharded=training.data_sharding
        ),
        data_distribution=tuple(dataset for dataset in datasets if dataset),
        training_pipeline=pipeline(primary.hostname, training.storage_backend),
        guarantees=guarantees or guarantees_for(resources, training),
    )
