"""Who gets how much: exact shares of records and of weight, for any fleet and any weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.spec import (
    DatasetInfo,
    NetworkNode,
    NodeAssignment,
    NodeReserve,
    Weight,
    apportion,
    q16_weights,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Weight", "apportion", "assign", "q16_weights", "usable_cores"]

_DATASETS_IN_AN_ASSIGNMENT = 2
_NO_RESERVE = NodeReserve()


def usable_cores(node: NetworkNode, reserves: Mapping[str, NodeReserve] | None = None) -> int:
    """The node's cores less what it keeps for itself."""
    return node.cores - (reserves or {}).get(node.hostname, _NO_RESERVE).cores


def assign(
    nodes: Sequence[NetworkNode],
    datasets: Sequence[DatasetInfo | None],
    *,
    weights: Sequence[Weight] | None = None,
    reserves: Mapping[str, NodeReserve] | None = None,
    sharded: bool = True,
) -> tuple[tuple[str, NodeAssignment], ...]:
    """What each node contributes and gets, in the specification's form, with nothing lost to rounding.

    The weights sum to exactly 65536/65536 and the shard sizes of each data set to its records.

    Args:
        nodes: the fleet, in the inventory's order, which decides ties.
        datasets: the natural-language data set, then the one of code; None where there is none of a kind,
            or left off the end.
        weights: what shares are proportional to, one per node, such as measured tokens per second; the usable
            cores where None.
        reserves: what nodes keep for themselves, by host name.
        sharded: False where every node has all records of every data set.

    Raises:
        DeclarationError: there are no nodes, or weights that nothing can be shared by.
        UnsupportedError: more data sets than the specification's form has places for.
    """
    if len(datasets) > _DATASETS_IN_AN_ASSIGNMENT:
        raise UnsupportedError(
            "the specification's form of an assignment has places for two data sets",
            field="datasets",
            found=f"{len(datasets)}: {', '.join(dataset.file for dataset in datasets if dataset)}",
            expected="a natural-language data set and one of code",
        )
    if weights is None:
        weights = [usable_cores(node, reserves) for node in nodes]
    if len(weights) != len(nodes):
        raise DeclarationError(
            "the weights are not those of the nodes",
            field="weights",
            found=f"{len(weights)} weights",
            expected=f"{len(nodes)}, one per node",
        )
    parts = q16_weights(weights)
    records = [dataset.records if dataset else 0 for dataset in datasets]
    records += [0] * (_DATASETS_IN_AN_ASSIGNMENT - len(datasets))
    natural, coding = (apportion(total, weights) if sharded else [total] * len(nodes) for total in records)
    return tuple(
        (
            node.hostname,
            NodeAssignment(
                weight=part,
                cores_allocated=usable_cores(node, reserves),
                ram_allocated_gb=node.ram_gb - (reserves or {}).get(node.hostname, _NO_RESERVE).ram_gb,
                gpu_available=node.has_gpu,
                natural_language_shard_size=natural_share,
                coding_language_shard_size=coding_share,
            ),
        )
        for node, part, natural_share, coding_share in zip(nodes, parts, natural, coding, strict=True)
    )
