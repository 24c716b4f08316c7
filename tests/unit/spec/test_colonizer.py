import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError
from tailtrain.spec import NetworkNode, NetworkResources, NodeRole, SwarmColonizer
from tailtrain.spec.defaults import ALL_NODES, ARCHITECT, QFOX


def test_a_new_node_comes_first_with_resources_and_generation_counted_anew() -> None:
    swarm = SwarmColonizer().register_node(QFOX)
    grown = swarm.register_node(ARCHITECT)
    assert grown.registered_nodes == (ARCHITECT, QFOX)
    assert grown.generation == 2
    assert grown.total_resources == NetworkResources.from_nodes([QFOX, ARCHITECT])
    assert swarm.registered_nodes == (QFOX,), "the swarm before is as it was"


def test_the_weights_of_the_specification_s_fleet_sum_to_one() -> None:
    swarm = SwarmColonizer()
    for node in ALL_NODES:
        swarm = swarm.register_node(node)
    assert swarm.weight_balance
    assert sum(weight.raw for weight in swarm.weights) == 65_536


def test_an_empty_swarm_and_one_with_wrong_totals_are_out_of_balance() -> None:
    assert not SwarmColonizer().weight_balance
    assert not SwarmColonizer((QFOX,), 1, NetworkResources.from_nodes([ARCHITECT])).weight_balance


@given(st.lists(st.integers(1, 512), min_size=1, max_size=40))
def test_every_registration_keeps_the_balance(cores: list[int]) -> None:
    swarm = SwarmColonizer()
    for place, count in enumerate(cores):
        node = NetworkNode(
            f"n{place}", "100.x.x.x", count, 1, has_gpu=False, role=NodeRole.COMPUTE, storage_gb=0
        )
        swarm = swarm.register_node(node)
        assert swarm.weight_balance
    assert swarm.generation == len(cores)


def test_a_host_cannot_be_registered_twice() -> None:
    swarm = SwarmColonizer().register_node(QFOX)
    with pytest.raises(DeclarationError, match="qfox: hostname: the host is declared twice"):
        swarm.register_node(msgspec.structs.replace(QFOX, hostname="QFOX"))


def test_a_node_without_cores_cannot_be_registered() -> None:
    with pytest.raises(DeclarationError, match="architect: cores: wrong number"):
        SwarmColonizer().register_node(msgspec.structs.replace(ARCHITECT, cores=0))
