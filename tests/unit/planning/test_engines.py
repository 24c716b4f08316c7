"""The map of engines: each cell trains, or is refused by name with the nearest setting that works."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.planning.engines import require_runnable
from tailtrain.planning.settings import Settings, parse_settings
from tailtrain.spec import CoordinationProtocol, DistributionStrategy, StorageBackend

REFUSED = {("pipelineParallel", "decentralized"), ("modelParallel", "decentralized")}
CELLS = list(product(DistributionStrategy, CoordinationProtocol, StorageBackend))


def settings(
    strategy: str = "dataParallel",
    protocol: str = "decentralized",
    backend: StorageBackend = StorageBackend.LOCAL,
    **words: Any,
) -> Settings:
    return parse_settings(
        {
            "datasets": {"natural": "x"},
            "distribution_strategy": strategy,
            "coordination_protocol": protocol,
            "storage_backend": backend.value,
            "resource_allocation": "declared_cores",
            "load_balancing": "static",
            **words,
        }
    )


@pytest.mark.parametrize(("strategy", "protocol", "backend"), CELLS)
def test_each_cell_trains_or_is_refused_by_name(
    strategy: DistributionStrategy, protocol: CoordinationProtocol, backend: StorageBackend
) -> None:
    declared = settings(strategy.value, protocol.value, backend)
    if (strategy.value, protocol.value) not in REFUSED:
        require_runnable(declared)
        return
    with pytest.raises(UnsupportedError) as caught:
        require_runnable(declared)
    message = str(caught.value)
    assert f"found {strategy.value} with decentralized" in message
    assert "one agreed order" in message
    assert f"{strategy.value} with eneGossip or centralized" in message
    assert 'coordination_protocol = "eneGossip"' in message


@pytest.mark.parametrize(("strategy", "protocol", "backend"), CELLS)
def test_the_same_to_the_bit_is_promised_for_one_cell_alone(
    strategy: DistributionStrategy, protocol: CoordinationProtocol, backend: StorageBackend
) -> None:
    declared = settings(strategy.value, protocol.value, backend, engine={"deterministic": True})
    if (strategy.value, protocol.value) == ("dataParallel", "centralized"):
        require_runnable(declared)
        return
    with pytest.raises(UnsupportedError) as caught:
        require_runnable(declared)
    if (strategy.value, protocol.value) not in REFUSED:
        assert "runs are the same to the bit" in str(caught.value)
        assert f"True with {strategy.value} and {protocol.value}" in str(caught.value)


@pytest.mark.parametrize("resource_allocation", ["swarm_topology_optimizer", "declared_cores"])
@pytest.mark.parametrize("load_balancing", ["health_weighted", "static"])
def test_every_method_of_the_specification_is_carried_out(
    resource_allocation: str, load_balancing: str
) -> None:
    require_runnable(settings(resource_allocation=resource_allocation, load_balancing=load_balancing))


def test_an_unknown_method_is_another_error() -> None:
    with pytest.raises(DeclarationError, match="unknown value") as caught:
        settings(load_balancing="statik")
    assert not isinstance(caught.value, UnsupportedError)
    assert 'Did you mean "static"' in str(caught.value)
