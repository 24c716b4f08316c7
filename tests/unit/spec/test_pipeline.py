from itertools import product

import msgspec

from tailtrain.spec import (
    CoordinationProtocol,
    NetworkResources,
    StorageBackend,
    guarantees,
    pipeline,
)
from tailtrain.spec.defaults import ALL_NODES, DEFAULT_TRAINING, QFOX


def test_the_phases_stand_in_order_and_name_the_primary() -> None:
    phases = pipeline("fern", StorageBackend.LOCAL)
    assert [phase.name for phase in phases] == [
        "Data Distribution",
        "Distributed Training",
        "Model Aggregation",
        "Validation",
    ]
    assert [phase.nodes for phase in phases] == ["all", "all", "fern (primary)", "all"]
    assert [phase.parallel for phase in phases] == [True, True, False, True]


def test_only_google_drive_is_said_to_be_google_drive() -> None:
    for backend in StorageBackend:
        named = "Google Drive" in pipeline("fern", backend)[0].action
        assert named == (backend is StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL)


def test_the_guarantees_count_the_fleet_that_is_there() -> None:
    resources = NetworkResources.from_nodes([QFOX])
    assert guarantees(resources, DEFAULT_TRAINING).resource_utilization == (
        "All 16 cores and 32GB RAM will be used"
    )


def test_nothing_is_promised_that_the_settings_do_not_provide() -> None:
    resources = NetworkResources.from_nodes(ALL_NODES)
    for protocol, backend in product(CoordinationProtocol, StorageBackend):
        training = msgspec.structs.replace(
            DEFAULT_TRAINING, coordination_protocol=protocol, storage_backend=backend
        )
        promised = guarantees(resources, training)
        gossip = protocol is CoordinationProtocol.ENE_GOSSIP
        assert ("ENE" in promised.coordination) == gossip
        assert ("ENE" in promised.load_balancing) == gossip
        drive = backend is StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL
        assert ("Google Drive" in promised.data_availability) == drive


def test_static_and_intolerant_trainings_say_so() -> None:
    training = msgspec.structs.replace(DEFAULT_TRAINING, load_balancing="static", fault_tolerance=False)
    promised = guarantees(NetworkResources.from_nodes(ALL_NODES), training)
    assert promised.load_balancing == "Static load distribution by declared cores"
    assert "stops" in promised.fault_tolerance
