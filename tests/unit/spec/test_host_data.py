import math

import pytest

from tailtrain.errors import DeclarationError, InvalidDeclarationError, TailtrainError
from tailtrain.spec import (
    NetworkNode,
    NodeReserve,
    NodeRole,
    fleet_from_host_data,
    node_from_host_data,
    reserve_from_host_data,
)

HARDWARE: dict[str, object] = {"cores": 8, "ram_gb": 16, "storage_gb": 500}


def problems_of(data: dict[str, object]) -> tuple[TailtrainError, ...]:
    with pytest.raises(InvalidDeclarationError) as caught:
        node_from_host_data("@tailscale/architect", NodeRole.COMPUTE, data)
    return caught.value.problems


def test_a_host_of_the_inventory_becomes_a_node_under_its_plain_name() -> None:
    data = {"cores": 16, "ram_gb": 32, "gpu": True, "storage_gb": 800}
    assert node_from_host_data("@tailscale/qfox", NodeRole.PRIMARY, data) == NetworkNode(
        "qfox", "100.x.x.x", 16, 32, has_gpu=True, role=NodeRole.PRIMARY, storage_gb=800
    )


def test_without_a_word_about_it_there_is_no_gpu_and_the_address_is_not_known() -> None:
    node = node_from_host_data("architect", NodeRole.COMPUTE, HARDWARE)
    assert (node.hostname, node.has_gpu, node.tailscale_ip) == ("architect", False, "100.x.x.x")


def test_an_address_that_is_given_is_kept() -> None:
    data = {**HARDWARE, "tailscale_ip": "100.64.0.3"}
    assert node_from_host_data("architect", NodeRole.COMPUTE, data).tailscale_ip == "100.64.0.3"


@pytest.mark.parametrize("key", ["cores", "ram_gb", "storage_gb"])
@pytest.mark.parametrize("value", ["8", True, 8.0, math.nan, -1, None])
def test_wrong_hardware_names_host_key_found_and_expected(key: str, value: object) -> None:
    (problem,) = problems_of({**HARDWARE, key: value})
    assert (problem.host, problem.field, problem.found) == ("architect", key, repr(value))
    assert problem.expected is not None


@pytest.mark.parametrize(("key", "value"), [("cores", 10**400), ("ram_gb", 2**21), ("storage_gb", 2**31)])
def test_more_than_any_machine_has_is_a_slip(key: str, value: int) -> None:
    (problem,) = problems_of({**HARDWARE, key: value})
    assert (problem.host, problem.field) == ("architect", key)
    assert len(str(problem)) < 200


@pytest.mark.parametrize("key", ["cores", "ram_gb", "storage_gb"])
def test_a_missing_key_is_told_once(key: str) -> None:
    (problem,) = problems_of({name: value for name, value in HARDWARE.items() if name != key})
    assert (problem.host, problem.field, problem.problem) == ("architect", key, "missing")


def test_a_gpu_is_true_or_false_under_the_inventory_s_name() -> None:
    (problem,) = problems_of({**HARDWARE, "gpu": 1})
    assert (problem.host, problem.field, problem.found) == ("architect", "gpu", "1")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("core", "cores"),
        ("Cores", "cores"),
        ("cpus", "cores"),
        ("ram", "ram_gb"),
        ("ramGB", "ram_gb"),
        ("memory", "ram_gb"),
        ("storage", "storage_gb"),
        ("storage-gb", "storage_gb"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_right_one(written: str, meant: str) -> None:
    data = {name: value for name, value in HARDWARE.items() if name != meant}
    (problem,) = problems_of({**data, written: 4})
    assert (problem.host, problem.field, problem.fix) == ("architect", written, f'Did you mean "{meant}"?')


@pytest.mark.parametrize("written", ["hasGPU", "gpus", "reserve_core", "reserved_cores", "niceness", "core"])
def test_a_misspelt_key_beside_a_complete_host_is_refused_too(written: str) -> None:
    (problem,) = problems_of({**HARDWARE, written: 1})
    assert problem.field == written


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("_sudo", True),
        ("_ram", 1),
        ("ssh_user", "root"),
        ("ssh_port", 22),
        ("tailscale_socket", "/run/tailscale.sock"),
        ("rack", 3),
        ("storage", "nvme"),
        ("owner", "ops"),
        ("nice", 10),
        ("reserve_cores", 2),
        ("reserve_ram_gb", 4),
    ],
)
def test_what_is_pyinfra_s_or_somebody_s_own_passes(key: str, value: object) -> None:
    assert node_from_host_data("architect", NodeRole.COMPUTE, {**HARDWARE, key: value}).cores == 8


def test_a_host_reserves_what_it_says_and_nothing_by_itself() -> None:
    assert reserve_from_host_data("architect", HARDWARE) == NodeReserve(0, 0, None)
    data = {**HARDWARE, "reserve_cores": 7, "reserve_ram_gb": 15, "nice": 19}
    assert reserve_from_host_data("@tailscale/architect", data) == NodeReserve(7, 15, 19)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reserve_cores", 8),
        ("reserve_cores", -1),
        ("reserve_cores", True),
        ("reserve_cores", None),
        ("reserve_cores", 1.0),
        ("reserve_ram_gb", 16),
        ("reserve_ram_gb", "2"),
        ("nice", 20),
        ("nice", -21),
        ("nice", "10"),
    ],
)
def test_a_reserve_leaves_something_to_train_with(key: str, value: object) -> None:
    with pytest.raises(InvalidDeclarationError) as caught:
        reserve_from_host_data("@tailscale/architect", {**HARDWARE, key: value})
    assert (caught.value.host, caught.value.field, caught.value.found) == ("architect", key, repr(value))


def test_a_fleet_keeps_the_order_of_the_inventory_and_its_reserves() -> None:
    fleet = fleet_from_host_data(
        [
            ("@tailscale/architect", NodeRole.COMPUTE, {**HARDWARE, "reserve_cores": 1}),
            ("@tailscale/qfox", NodeRole.PRIMARY, HARDWARE),
        ]
    )
    assert [node.hostname for node in fleet.nodes] == ["architect", "qfox"]
    assert fleet.primary.hostname == "qfox"
    assert fleet.reserves == {"architect": NodeReserve(1), "qfox": NodeReserve()}


def test_a_fleet_tells_the_problems_of_all_its_hosts_at_once() -> None:
    hosts = [
        ("@tailscale/qfox", NodeRole.COMPUTE, {**HARDWARE, "cores": 0}),
        ("qfox", NodeRole.COMPUTE, {**HARDWARE, "reserve_cores": 9}),
        ("bad_name", NodeRole.COMPUTE, {}),
    ]
    with pytest.raises(InvalidDeclarationError) as caught:
        fleet_from_host_data(hosts)
    told = {(problem.host, problem.field) for problem in caught.value.problems}
    assert told == {
        ("qfox", "cores"),
        ("qfox", "reserve_cores"),
        ("bad_name", "hostname"),
        ("bad_name", "cores"),
        ("bad_name", "ram_gb"),
        ("bad_name", "storage_gb"),
        ("qfox", "hostname"),
        (None, "role"),
    }
    assert str(caught.value).startswith("8 problems\n- qfox: cores: wrong number")


def test_an_empty_inventory_is_refused() -> None:
    with pytest.raises(DeclarationError, match="the fleet is empty"):
        fleet_from_host_data([])
