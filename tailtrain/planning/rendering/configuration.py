"""A configuration of the specification as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.rendering.text import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.spec import DistributedTrainingConfig


def render_configuration(config: DistributedTrainingConfig) -> str:
    """A configuration of the specification as tables."""
    nodes = {node.hostname: node for node in config.network_topology}
    rows: list[Sequence[object]] = [
        ("Node", "role", "address", "cores", "GB", "GPU", "weight", "natural", "coding")
    ]
    for name, given in config.node_assignments:
        node = nodes[name]
        rows.append(
            (
                name,
                node.role.value,
                node.tailscale_ip,
                given.cores_allocated,
                given.ram_allocated_gb,
                "yes" if given.gpu_available else "no",
                given.weight.raw,
                f"{given.natural_language_shard_size:,}",
                f"{given.coding_language_shard_size:,}",
            )
        )
    training = config.training_configuration
    lines = [
        (
            f"{training.distribution_strategy.value}, {training.coordination_protocol.value},"
            f" {training.storage_backend.value}; {training.resource_allocation}, {training.load_balancing}"
        ),
        "",
        *table(rows, right=(3, 4, 6, 7, 8), indent=0),
        "",
    ]
    data: list[Sequence[object]] = [("Data set", "MB", "records")]
    data += [(d.file, d.size_mb, f"{d.records:,}") for d in config.data_distribution]
    lines += [*table(data, right=(1, 2), indent=0), ""]
    phases: list[Sequence[object]] = [("Phase", "nodes", "action")]
    phases += [(phase.name, phase.nodes, phase.action) for phase in config.training_pipeline]
    return "\n".join([*lines, *table(phases, indent=0)]) + "\n"
