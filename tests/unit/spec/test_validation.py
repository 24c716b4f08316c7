import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError, InvalidDeclarationError, TailtrainError
from tailtrain.spec import (
    CoordinationProtocol,
    DistributionStrategy,
    NodeRole,
    StorageBackend,
    parse_backend,
    parse_protocol,
    parse_role,
    parse_strategy,
    validate_nodes,
    validate_training,
)
from tailtrain.spec.defaults import ALL_NODES, ARCHITECT, DEFAULT_TRAINING, JUDGE, QFOX
from tailtrain.spec.structures import NetworkNode
from tailtrain.spec.validation import host_name_problem


def changed(node: NetworkNode, **values: Any) -> NetworkNode:
    return msgspec.structs.replace(node, **values)


def problems_of(nodes: list[NetworkNode]) -> tuple[TailtrainError, ...]:
    with pytest.raises(InvalidDeclarationError) as caught:
        validate_nodes(nodes)
    return caught.value.problems


def only_problem_of(nodes: list[NetworkNode]) -> TailtrainError:
    (problem,) = problems_of(nodes)
    return problem


def test_the_specification_s_fleet_and_training_are_valid() -> None:
    validate_nodes(ALL_NODES)
    validate_nodes([QFOX])
    validate_training(DEFAULT_TRAINING)


def test_an_empty_fleet_is_refused() -> None:
    assert only_problem_of([]).problem == "the fleet is empty"


def test_a_fleet_without_a_primary_is_refused() -> None:
    problem = only_problem_of([ARCHITECT, JUDGE])
    assert (problem.field, problem.found, problem.expected) == ("role", "2 compute nodes", "one primary")


def test_a_second_primary_is_refused_by_name() -> None:
    problem = only_problem_of([QFOX, changed(ARCHITECT, role=NodeRole.PRIMARY)])
    assert (problem.host, problem.field, problem.found) == ("architect", "role", "qfox and architect")


def test_a_host_given_twice_is_refused_whatever_its_case() -> None:
    problem = only_problem_of([QFOX, JUDGE, changed(ARCHITECT, hostname="Judge")])
    assert (problem.host, problem.field) == ("Judge", "hostname")
    assert problem.found == "as number 2 and number 3"


def test_two_hosts_cannot_have_one_address_unless_it_is_masked() -> None:
    here = "100.64.0.2"
    problem = only_problem_of(
        [QFOX, changed(JUDGE, tailscale_ip=here), changed(ARCHITECT, tailscale_ip=here)]
    )
    assert (problem.host, problem.field) == ("architect", "tailscale_ip")
    assert "judge" in str(problem.found)


@pytest.mark.parametrize("value", ["16", True, 16.0, math.nan, math.inf, None, [16], 0, -1, 1.5, -(10**30)])
@pytest.mark.parametrize("field", ["cores", "ram_gb", "storage_gb"])
def test_hardware_must_be_whole_numbers_in_range(field: str, value: object) -> None:
    if field == "storage_gb" and value == 0 and not isinstance(value, bool):
        validate_nodes([QFOX, changed(JUDGE, storage_gb=0)])
        return
    problem = only_problem_of([QFOX, changed(JUDGE, **{field: value})])
    assert (problem.host, problem.field, problem.found) == ("judge", field, repr(value))
    assert "a whole number" in str(problem.expected)


@pytest.mark.parametrize("value", [1, "yes", None])
def test_a_gpu_is_there_or_not(value: object) -> None:
    assert only_problem_of([changed(QFOX, has_gpu=value)]).field == "has_gpu"


@pytest.mark.parametrize("value", ["100.64.0.300", "qfox", 5, None, ["100.64.0.2"], "100.x.x"])
def test_an_address_is_one_or_is_masked(value: object) -> None:
    problem = only_problem_of([changed(QFOX, tailscale_ip=value)])
    assert (problem.host, problem.field, problem.found) == ("qfox", "tailscale_ip", repr(value))


@pytest.mark.parametrize("value", ["100.64.0.2", "fd7a:115c:a1e0::1", "100.x.x.x"])
def test_addresses_of_both_kinds_are_taken(value: str) -> None:
    validate_nodes([changed(QFOX, tailscale_ip=value)])


def test_an_unknown_role_is_refused() -> None:
    problem = next(iter(problems_of([QFOX, changed(JUDGE, role="computer")])))
    assert (problem.host, problem.field, problem.found) == ("judge", "role", "'computer'")
    assert problem.fix == 'Did you mean "compute"?'


@pytest.mark.parametrize(
    "name", ["qfox", "ip-172-31-25-81", "3com", "a", "x" * 63, "qfox.tail1234.ts.net", "QFox"]
)
def test_host_names_as_they_are_used(name: str) -> None:
    assert host_name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("", "-a", "a-", "a_b", "a b", "x" * 64, "a..b", ".a", "a.", "bär", "a\n", "@local", "a/b", "$(id)"),
        *("\N{ARABIC-INDIC DIGIT ONE}", ".".join(["x" * 60] * 5), "100.64.0.2", "::1", 5, None),
    ],
)
def test_names_that_are_no_host_names(name: object) -> None:
    problem = host_name_problem(name)
    assert problem is not None
    assert problem.field == "hostname"


@given(st.text(max_size=70))
def test_no_host_name_needs_quoting(name: str) -> None:
    if host_name_problem(name) is None:
        assert name.replace("-", "").replace(".", "").isalnum()
        assert name.isascii()


def test_all_problems_of_a_fleet_are_told_together_one_a_line() -> None:
    nodes = [changed(QFOX, cores=0), changed(JUDGE, ram_gb="8", storage_gb=-1), JUDGE]
    with pytest.raises(InvalidDeclarationError) as caught:
        validate_nodes(nodes)
    told = [(problem.host, problem.field) for problem in caught.value.problems]
    assert told == [("qfox", "cores"), ("judge", "ram_gb"), ("judge", "storage_gb"), ("judge", "hostname")]
    assert str(caught.value).splitlines() == [
        "4 problems",
        *(f"- {problem}" for problem in caught.value.problems),
    ]
    assert (caught.value.host, caught.value.field, caught.value.found) == ("qfox", "cores", "0")


def test_one_problem_is_one_line() -> None:
    with pytest.raises(DeclarationError) as caught:
        validate_nodes([changed(QFOX, cores=0)])
    assert str(caught.value) == "qfox: cores: wrong number (found 0, expected a whole number, 1 or more)"


def test_a_very_long_value_is_cut_in_the_message() -> None:
    problem = only_problem_of([changed(QFOX, cores="9" * 10_000)])
    assert len(str(problem)) < 250
    assert (
        only_problem_of([changed(QFOX, cores=-(10**5000))]).found == "a value of type int, too long to show"
    )


def test_names_of_the_specification_are_parsed() -> None:
    assert parse_strategy("dataParallel") is DistributionStrategy.DATA_PARALLEL
    assert parse_protocol("eneGossip") is CoordinationProtocol.ENE_GOSSIP
    assert parse_backend("local") is StorageBackend.LOCAL
    assert parse_role("primary") is NodeRole.PRIMARY
    assert parse_role(NodeRole.COMPUTE) is NodeRole.COMPUTE


@pytest.mark.parametrize(
    ("written", "meant"),
    [("data_parallel", "dataParallel"), ("DATAPARALLEL", "dataParallel"), ("pipeline", "pipelineParallel")],
)
def test_a_near_name_is_suggested(written: str, meant: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_strategy(written)
    assert caught.value.field == "distribution_strategy"
    assert caught.value.found == repr(written)
    assert caught.value.fix == f'Did you mean "{meant}"?'


@pytest.mark.parametrize("value", ["quantum", "", None, 3, True, ["local"], {}])
def test_what_is_no_name_at_all_is_refused_with_the_choice(value: object) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_backend(value)
    assert caught.value.expected == '"googleDriveTopological" or "local" or "s3"'
    assert caught.value.fix is None


@pytest.mark.parametrize(
    ("attribute", "value", "fix"),
    [
        ("resource_allocation", "swarm_optimizer", 'Did you mean "swarm_topology_optimizer"?'),
        ("resource_allocation", "declared-cores", 'Did you mean "declared_cores"?'),
        ("load_balancing", "health", 'Did you mean "health_weighted"?'),
        ("load_balancing", "round_robin", None),
        ("data_sharding", 1, None),
        ("fault_tolerance", "true", None),
        ("coordination_protocol", "gossip", 'Did you mean "eneGossip"?'),
    ],
)
def test_settings_that_are_not_known_are_refused(attribute: str, value: object, fix: str | None) -> None:
    training = msgspec.structs.replace(DEFAULT_TRAINING, **{attribute: value})
    with pytest.raises(InvalidDeclarationError) as caught:
        validate_training(training)
    assert (caught.value.field, caught.value.found, caught.value.fix) == (attribute, repr(value), fix)
