"""The declared fleet as one value of the specification."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tailtrain.data.inspect import inspect_parquet
from tailtrain.errors import DaemonError, UnknownHostError
from tailtrain.fleet.declared import declared_fleet
from tailtrain.planning.specification import build_config
from tailtrain.spec import DatasetInfo, DistributedTrainingConfig, NetworkNode
from tailtrain.tailnet.daemon import current_netmap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyinfra.api.state import State

# The domains that the specification's form of an assignment has places for, in its order.
_PLACES = ("natural", "coding")


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
    datasets: list[DatasetInfo | None] = []
    for file in _in_places(dict(declared.settings.datasets)):
        found = inspect_parquet(project / file) if file else None
        datasets.append(
            DatasetInfo.measured(
                Path(file).name, size_bytes=found.bytes, records=found.records, shards=len(declared.nodes)
            )
            if file and found
            else None
        )
    topology = declared.nodes if masked else _located(declared.nodes)
    return build_config(
        topology,
        declared.settings.training,
        datasets,
        timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        reserves=declared.reserves,
        masked=masked,
    )


def _in_places(files: Mapping[str, str]) -> list[str | None]:
    """The data sets' files, each in its domain's place; other domains take the places that are free."""
    others = [file for domain, file in files.items() if domain not in _PLACES]
    placed = [files.get(domain) or (others.pop(0) if others else None) for domain in _PLACES]
    return [*placed, *others]


def _located(nodes: Sequence[NetworkNode]) -> tuple[NetworkNode, ...]:
    """The nodes with their tailnet addresses, masked still where the tailnet does not know them."""
    try:
        netmap = current_netmap()
    except DaemonError:
        return tuple(nodes)
    found = []
    for node in nodes:
        try:
            address = netmap.find(node.hostname).address
        except UnknownHostError:
            found.append(node)
        else:
            found.append(msgspec.structs.replace(node, tailscale_ip=address))
    return tuple(found)
