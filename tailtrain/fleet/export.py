"""The declared fleet as one value of the specification."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tailtrain.data.inspect import inspect_parquet
from tailtrain.errors import TailnetError
from tailtrain.fleet.declared import declared_fleet
from tailtrain.planning.specification import build_config
from tailtrain.spec import DatasetInfo, DistributedTrainingConfig, NetworkNode
from tailtrain.tailnet.daemon import address_of

if TYPE_CHECKING:
    from pyinfra.api.state import State

_MEGABYTE = 10**6


def configuration(state: State, *, masked: bool) -> DistributedTrainingConfig:
    """The configuration that the inventory and its group data declare; counts are read from the data sets.

    Args:
        state: pyinfra's state with the inventory.
        masked: leave out addresses; then the tailnet is not asked either.

    Raises:
        DeclarationError: naming host and field, or the setting.
        DataError: naming the data set's file.
    """
    declared = declared_fleet(state.inventory)
    project = Path(state.cwd or Path.cwd())
    nodes = len(declared.nodes)
    datasets = []
    for _, file in declared.settings.datasets:
        found = inspect_parquet(project / file)
        datasets.append(
            DatasetInfo(
                file=Path(file).name,
                size_mb=found.bytes // _MEGABYTE,
                records=found.records,
                shards=nodes,
                shard_size_records=found.records // nodes,
            )
        )
    topology = declared.nodes if masked else tuple(map(_located, declared.nodes))
    return build_config(
        topology,
        declared.settings.training,
        datasets,
        timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        reserves=declared.reserves,
        masked=masked,
    )


def _located(node: NetworkNode) -> NetworkNode:
    """The node with its tailnet address, masked still where the tailnet does not know it."""
    try:
        return msgspec.structs.replace(node, tailscale_ip=address_of(node.hostname))
    except TailnetError:
        return node
