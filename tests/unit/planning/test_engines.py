"""The map of engines: each cell trains, or is refused by name with the nearest setting that works."""

from __future__ import annotations

from itertools import product

import pytest

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.planning.engines import require_runnable
from tailtrain.planning.settings import parse_settings
from tailtrain.spec import CoordinationProtocol, DistributionStrategy, StorageBackend, TrainingConfiguration

RUNS = {("dataParallel", "decentralized"), ("dataParallel", "centralized"), ("dataParallel", "eneGossip")}
CELLS = list(product(DistributionStrategy, CoordinationProtocol, StorageBackend))


def training(
    strategy: DistributionStrategy = DistributionStrategy.DATA_PARALLEL,
    protocol: CoordinationProtocol = CoordinationProtocol.DECENTRALIZED,
    backend: StorageBackend = StorageBackend.LOCAL,
    words: dict[str, str] | None = None,
) -> TrainingConfiguration:
    settings = {
        "datasets": {"natural": "x"},
        "distribution_strategy": strategy.value,
        "coordination_protocol": protocol.value,
        "storage_backend": backend.value,
        "resource_allocation": "declared_cores",
        "load_balancing": "static",
        **(words or {}),
    }
    return parse_settings(settings).training


@pytest.mark.parametrize(("strategy", "protocol", "backend"), CELLS)
def test_each_cell_trains_or_is_refused_by_name(
    strategy: DistributionStrategy, protocol: CoordinationProtocol, backend: StorageBackend
) -> None:
    declared = training(strategy, protocol, backend)
    if (strategy.value, protocol.value) in RUNS:
        require_runnable(declared)
        return
    with pytest.raises(UnsupportedError) as caught:
        require_runnable(declared)
    message = str(caught.value)
    assert f"{strategy.value} with {protocol.value}" in message
    assert 'distribution_strategy = "dataParallel"' in message
    assert 'coordination_protocol = "decentralized"' in message


@pytest.mark.parametrize(
    "strategy", [DistributionStrategy.PIPELINE_PARALLEL, DistributionStrategy.MODEL_PARALLEL]
)
def test_what_will_never_be_says_why(strategy: DistributionStrategy) -> None:
    with pytest.raises(UnsupportedError, match="need one agreed order"):
        require_runnable(training(strategy, CoordinationProtocol.DECENTRALIZED))
    with pytest.raises(UnsupportedError, match="does not train in this version"):
        require_runnable(training(strategy, CoordinationProtocol.CENTRALIZED))


@pytest.mark.parametrize(
    ("field", "known", "works"),
    [
        ("resource_allocation", "swarm_topology_optimizer", "declared_cores"),
        ("load_balancing", "health_weighted", "static"),
    ],
)
def test_a_known_method_that_is_not_carried_out_is_refused_with_the_one_that_is(
    field: str, known: str, works: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"found {known}, expected {works}") as caught:
        require_runnable(training(words={field: known}))
    assert f'{field} = "{works}"' in str(caught.value)


def test_an_unknown_method_is_another_error() -> None:
    with pytest.raises(DeclarationError, match="unknown value") as caught:
        training(words={"load_balancing": "statik"})
    assert not isinstance(caught.value, UnsupportedError)
    assert 'Did you mean "static"' in str(caught.value)
