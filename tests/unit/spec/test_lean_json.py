import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError
from tailtrain.spec import (
    Q16_16,
    CoordinationProtocol,
    DatasetInfo,
    DistributedTrainingConfig,
    DistributionStrategy,
    NetworkNode,
    NetworkResources,
    NodeAssignment,
    NodeRole,
    PipelinePhase,
    StorageBackend,
    TrainingConfiguration,
    TrainingGuarantees,
    from_lean_json,
    lean_default_config,
    masked,
    read_value,
    to_lean_json,
)
from tailtrain.spec.defaults import ALL_NODES, QFOX
from tailtrain.spec.lean_json import LONGEST_DOCUMENT

NAT = st.integers(min_value=0) | st.integers(0, 2**80)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NODES = st.builds(NetworkNode, TEXT, TEXT, NAT, NAT, st.booleans(), st.sampled_from(NodeRole), NAT)
ASSIGNMENTS = st.builds(NodeAssignment, st.builds(Q16_16, st.integers()), NAT, NAT, st.booleans(), NAT, NAT)
CONFIGS = st.builds(
    DistributedTrainingConfig,
    timestamp=TEXT,
    network_topology=st.lists(NODES, max_size=4).map(tuple),
    total_resources=st.builds(NetworkResources, NAT, NAT, NAT, NAT, NAT),
    training_configuration=st.builds(
        TrainingConfiguration,
        st.sampled_from(DistributionStrategy),
        st.sampled_from(CoordinationProtocol),
        st.sampled_from(StorageBackend),
        TEXT,
        st.booleans(),
        st.booleans(),
        TEXT,
    ),
    node_assignments=st.lists(st.tuples(TEXT, ASSIGNMENTS), max_size=4).map(tuple),
    data_distribution=st.lists(st.builds(DatasetInfo, TEXT, NAT, NAT, NAT, NAT), max_size=3).map(tuple),
    training_pipeline=st.lists(st.builds(PipelinePhase, TEXT, TEXT, TEXT, st.booleans()), max_size=3).map(
        tuple
    ),
    guarantees=st.builds(TrainingGuarantees, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT),
)


def document(*path: str | int, value: Any = None) -> str:
    """The default configuration's JSON, with the value at that path replaced."""
    whole = json.loads(to_lean_json(lean_default_config()))
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(whole)


def refused(text: str | bytes) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        from_lean_json(text)
    return caught.value


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(config=CONFIGS, indent=st.none() | st.integers(0, 4))
def test_any_configuration_is_read_back_as_it_was(
    config: DistributedTrainingConfig, indent: int | None
) -> None:
    text = to_lean_json(config, indent)
    assert read_value(text, DistributedTrainingConfig) == config
    assert read_value(text.encode(), DistributedTrainingConfig) == config


def test_single_values_have_lean_s_form() -> None:
    assert to_lean_json(Q16_16(29127)) == '{"raw":29127}'
    assert to_lean_json(QFOX) == (
        '{"hostname":"qfox","tailscaleIP":"100.x.x.x","cores":16,"ramGB":32,"hasGPU":true,"role":"primary",'
        '"storageGB":800}'
    )
    assert read_value('{"raw":-3}', Q16_16) == Q16_16(-3)


def test_the_order_of_fields_means_nothing() -> None:
    ascending = json.dumps(json.loads(to_lean_json(lean_default_config())), sort_keys=True)
    assert from_lean_json(ascending) == lean_default_config()


def test_addresses_are_masked_and_nothing_else() -> None:
    config = lean_default_config()
    resolved = msgspec.structs.replace(
        config,
        network_topology=tuple(
            msgspec.structs.replace(node, tailscale_ip=f"100.64.0.{place}")
            for place, node in enumerate(ALL_NODES)
        ),
    )
    assert "100.64.0.3" in to_lean_json(resolved)
    assert masked(resolved) == config


@pytest.mark.parametrize("value", ["16", True, 16.0, 1e3, -1, None, [], {}, float("nan"), float("inf")])
def test_a_natural_number_is_a_whole_number_not_negative(value: object) -> None:
    error = refused(document("networkTopology", 2, "cores", value=value))
    assert (error.host, error.field) == ("judge", "networkTopology[2].cores")
    assert error.found == repr(value)
    assert "a whole number" in str(error.expected)


@pytest.mark.parametrize(
    ("path", "value", "field", "expected"),
    [
        (("timestamp",), 5, "timestamp", "a text"),
        (("networkTopology",), {}, "networkTopology", "a list"),
        (("networkTopology", 0), [], "networkTopology[0]", "an object"),
        (("networkTopology", 0, "hasGPU"), 1, "networkTopology[0].hasGPU", "true or false"),
        (
            ("trainingConfiguration", "dataSharding"),
            "true",
            "trainingConfiguration.dataSharding",
            "true or false",
        ),
        (("nodeAssignments", 1, 1, "weight"), 5, "nodeAssignments[1][1].weight", "an object"),
        (
            ("nodeAssignments", 1, 1, "weight", "raw"),
            0.5,
            "nodeAssignments[1][1].weight.raw",
            "a whole number",
        ),
        (
            ("nodeAssignments", 1),
            ["a"],
            "nodeAssignments[1]",
            "a list of two: a host name and its assignment",
        ),
        (("nodeAssignments", 1), {}, "nodeAssignments[1]", "a list"),
    ],
)
def test_a_wrong_type_names_path_found_and_expected(
    path: tuple[str | int, ...], value: object, field: str, expected: str
) -> None:
    error = refused(document(*path, value=value))
    assert (error.field, error.found, error.expected) == (field, repr(value), expected)


def test_a_wrong_assignment_names_its_host() -> None:
    error = refused(document("nodeAssignments", 1, 1, "coresAllocated", value=-1))
    assert (error.host, error.field) == ("architect", "nodeAssignments[1][1].coresAllocated")


@pytest.mark.parametrize(
    ("path", "value", "fix"),
    [
        (("networkTopology", 0, "role"), "Primary", 'Did you mean "primary"?'),
        (("trainingConfiguration", "distributionStrategy"), "data_parallel", 'Did you mean "dataParallel"?'),
        (("trainingConfiguration", "coordinationProtocol"), "raft", None),
        (("trainingConfiguration", "storageBackend"), "S3", 'Did you mean "s3"?'),
    ],
)
def test_an_unknown_constructor_is_refused_with_the_choice(
    path: tuple[str | int, ...], value: str, fix: str | None
) -> None:
    error = refused(document(*path, value=value))
    assert (error.found, error.fix) == (repr(value), fix)
    assert " or " in str(error.expected)


def test_an_unknown_field_is_refused_with_the_one_that_was_meant() -> None:
    error = refused(document("networkTopology", 1, "ram_gb", value=16))
    assert (error.host, error.field, error.found) == ("architect", "networkTopology[1].ram_gb", "16")
    assert error.fix == 'Did you mean "ramGB"?'


def test_a_missing_field_is_named() -> None:
    whole = json.loads(to_lean_json(lean_default_config()))
    del whole["networkTopology"][1]["ramGB"]
    error = refused(json.dumps(whole))
    assert (error.host, error.field, error.found) == ("architect", "networkTopology[1].ramGB", "nothing")
    assert refused("{}").field == "timestamp"


def test_a_field_that_stands_twice_is_refused_wherever_it_is() -> None:
    text = to_lean_json(lean_default_config()).replace('"cores":8,', '"cores":8,"cores":9,')
    assert refused(text).field == "networkTopology[1].cores"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("hello", "not JSON"),
        ('{"timestamp": ', "not JSON"),
        ("{} {}", "not JSON"),
        ("{'a': 1}", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        ("\ufeff{}", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"raw": 1' + "0" * 5000 + "}", "too long"),
        (" " * (LONGEST_DOCUMENT + 1), "too long"),
        ('{"timestamp": "\\ud800"}', "half a character"),
        ('{"\\ud800": 1}', "half a character"),
    ],
)
def test_what_cannot_be_read_at_all_is_refused_in_words(text: str | bytes, problem: str) -> None:
    assert problem in str(refused(text))
    str(refused(text)).encode()


@given(st.text() | st.binary())
def test_nothing_but_a_declaration_error_comes_of_any_input(text: str | bytes) -> None:
    refused(text)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES: list[tuple[str | int, ...]] = [
    (name,) for name in json.loads(to_lean_json(lean_default_config()))
] + [
    ("networkTopology", 0),
    ("networkTopology", 3, "hostname"),
    ("nodeAssignments", 2),
    ("nodeAssignments", 2, 0),
    ("nodeAssignments", 2, 1),
    ("guarantees", "."),
    ("totalResources", "a[0].b"),
]


@settings(deadline=None)
@given(place=st.sampled_from(PLACES), value=JSON_VALUES)
def test_any_value_in_any_place_is_read_or_refused_in_words(
    place: tuple[str | int, ...], value: object
) -> None:
    try:
        from_lean_json(document(*place, value=value))
    except DeclarationError as error:
        assert error.field  # noqa: PT017 - either outcome is right, the words are what is tested
        str(error).encode()


def test_a_fleet_that_cannot_be_is_refused_with_its_paths() -> None:
    error = refused(document("networkTopology", 1, "cores", value=0))
    assert (error.host, error.field) == ("architect", "networkTopology[1].cores")
    error = refused(document("networkTopology", 1, "role", value="primary"))
    assert error.problem == "the fleet has more than one primary"
    error = refused(document("networkTopology", 1, "hostname", value="judge"))
    assert error.field == "networkTopology[2].hostname"


def test_a_training_that_cannot_be_is_refused_with_its_path() -> None:
    error = refused(document("trainingConfiguration", "loadBalancing", value="even"))
    assert (error.field, error.found) == ("trainingConfiguration.loadBalancing", "'even'")


def test_totals_and_assignments_must_be_those_of_the_nodes() -> None:
    error = refused(document("totalResources", "totalRAMGB", value=73))
    assert (error.field, error.found, error.expected) == ("totalResources.totalRAMGB", 73, 72)
    error = refused(document("nodeAssignments", value=[]))
    assert (error.field, error.found, error.expected) == ("nodeAssignments[0]", "nothing", "'qfox'")
    error = refused(document("nodeAssignments", 1, 0, value="judge"))
    assert (error.field, error.found, error.expected) == ("nodeAssignments[1]", "'judge'", "'architect'")


@pytest.mark.parametrize("name", ["", "`", "a.b[0]", "$.networkTopology", "x\ny"])
def test_a_field_of_an_odd_name_is_refused_as_unknown(name: str) -> None:
    assert refused(document(name, value=1)).problem == "the specification has no such field"


@pytest.mark.parametrize("name", ["x` - at `$.networkTopology[99].y", " - at `$.timestamp"])
def test_a_field_s_name_that_looks_like_a_message_does_no_harm(name: str) -> None:
    assert refused(document(name, value=1)).field


def test_nothing_in_a_document_can_drive_the_terminal() -> None:
    for path in (
        ("networkTopology", 1, "hostname"),
        ("networkTopology", 1, "tailscaleIP"),
        ("nodeAssignments", 1, 0),
        ("trainingConfiguration", "loadBalancing"),
        ("networkTopology", 1, "\x1b[2J"),
    ):
        assert "\x1b" not in str(refused(document(*path, value="\x1b[31m\n")))


@pytest.mark.parametrize("depth", range(800, 1000, 7))
def test_any_depth_is_refused_in_words(depth: int) -> None:
    assert refused('{"timestamp":' + "[" * depth + "]" * depth + "}").field
