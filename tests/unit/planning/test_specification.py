import msgspec
import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning.specification import build_config
from tailtrain.spec import (
    NetworkNode,
    StorageBackend,
    from_lean_json,
    lean_default_config,
    to_lean_json,
)
from tailtrain.spec.defaults import ALL_NODES, ARCHITECT, DEFAULT_TRAINING, QFOX

DEFAULT = lean_default_config()
STAMP = DEFAULT.timestamp


def addressed(node: NetworkNode, address: str) -> NetworkNode:
    return msgspec.structs.replace(node, tailscale_ip=address)


def test_the_specification_s_fleet_differs_from_its_default_only_by_what_the_floors_lose() -> None:
    config = build_config(ALL_NODES, DEFAULT_TRAINING, DEFAULT.data_distribution, timestamp=STAMP)
    assert msgspec.structs.replace(config, node_assignments=()) == msgspec.structs.replace(
        DEFAULT, node_assignments=()
    )
    assert sum(assignment.weight.raw for _, assignment in config.node_assignments) == 65_536


def test_an_export_is_read_back_as_it_was() -> None:
    nodes = [addressed(QFOX, "100.64.0.2"), addressed(ARCHITECT, "100.64.0.3")]
    config = build_config(nodes, DEFAULT_TRAINING, DEFAULT.data_distribution, timestamp=STAMP)
    assert config.network_topology == tuple(nodes)
    assert from_lean_json(to_lean_json(config, indent=2)) == config


def test_a_masked_export_shows_no_address() -> None:
    nodes = [addressed(QFOX, "100.64.0.2"), addressed(ARCHITECT, "100.64.0.3")]
    config = build_config(nodes, DEFAULT_TRAINING, DEFAULT.data_distribution, timestamp=STAMP, masked=True)
    assert "100.64" not in to_lean_json(config)


def test_pipeline_and_guarantees_follow_fleet_and_storage() -> None:
    training = msgspec.structs.replace(DEFAULT_TRAINING, storage_backend=StorageBackend.LOCAL)
    config = build_config([QFOX], training, DEFAULT.data_distribution, timestamp=STAMP)
    assert "Google Drive" not in to_lean_json(config)
    assert config.training_pipeline[2].nodes == "qfox (primary)"
    assert config.guarantees.resource_utilization == "All 16 cores and 32GB RAM will be used"


def test_guarantees_that_are_given_are_kept() -> None:
    given = msgspec.structs.replace(DEFAULT.guarantees, coordination="by hand")
    config = build_config([QFOX], DEFAULT_TRAINING, DEFAULT.data_distribution, given, timestamp=STAMP)
    assert config.guarantees == given


def test_a_fleet_or_training_that_cannot_be_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no primary"):
        build_config([ARCHITECT], DEFAULT_TRAINING, [], timestamp=STAMP)
    training = msgspec.structs.replace(DEFAULT_TRAINING, load_balancing="even")
    with pytest.raises(DeclarationError, match="load_balancing: unknown value"):
        build_config([QFOX], training, [], timestamp=STAMP)
