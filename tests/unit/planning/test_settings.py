"""What group_data may say: every wrong value is refused by name, with what was expected."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError
from tailtrain.planning.settings import SETTINGS, LoopSettings, ModelSettings, parse_settings

DATA = {"datasets": {"natural": "prose.parquet"}}
HUGE = 10**400  # an integer that no float can hold

NOTHING: dict[str, object] = {}
BAD: list[tuple[str, Any]] = [
    *(("distribution_strategy", value) for value in ("dataparallel", "", None, 3, ["dataParallel"])),
    *(("coordination_protocol", value) for value in ("gossip", True)),
    *(("storage_backend", value) for value in ("s4", None)),
    *(("resource_allocation", value) for value in ("declared-cores", "", 1, None)),
    *(("load_balancing", value) for value in ("even", 0, None)),
    *(("data_sharding", value) for value in (1, 0, "True", None)),
    *(("fault_tolerance", value) for value in ("yes", 1, None)),
    *(("datasets", value) for value in (NOTHING, 0, "prose.parquet", None)),
    *(("datasets", {name: "x"}) for name in ("", "two words", "_x", "1st", "x\n", "naturál", 3, "x" * 64)),
    *(("datasets", {"natural": file}) for file in ("", None, 3)),
    *(("heldout_fraction", value) for value in (-0.01, 0.51, "0.1", True, math.nan, None, HUGE)),
    *(("validation_bytes_per_domain", value) for value in (0, -1, 1.5, True, "1", None)),
    *(("worker_port", value) for value in (80, 1023, 65536, 45001.0, "45001", True)),
    *((name, value) for name in ("wheels", "package_index") for value in ("", 3, True, 1.5)),
    *((name, value) for name in ("model", "training") for value in (None, True, "x", 3)),
    *(("package_index", value) for value in ("not an address", "//host/simple", "https://", "ftp://host/x")),
    *((name, value) for name, value in (("wheels", "a\0b"), ("datasets", {"natural": "a\0b"}))),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda value: repr(value)[:40])
def test_a_wrong_value_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_settings({**DATA, name: value})
    assert caught.value.field is not None
    assert caught.value.field.startswith(f"group_data: {name}")
    assert caught.value.expected
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


NUMBERS = [
    *(("model", field.name, field.default) for field in fields(ModelSettings)),
    *(("training", field.name, field.default) for field in fields(LoopSettings)),
]


@pytest.mark.parametrize(("section", "name", "default"), NUMBERS)
def test_no_number_takes_what_is_no_number_of_its_kind(section: str, name: str, default: float) -> None:
    wrong: list[Any] = [-1, -0.5, True, "4", None, math.nan, math.inf, -math.inf, [4], HUGE]
    if isinstance(default, int):
        wrong += [float(default), 1.5]
    for value in wrong:
        with pytest.raises(DeclarationError) as caught:
            parse_settings({**DATA, section: {name: value}})
        assert caught.value.field == f"group_data: {section}.{name}"
        assert str(caught.value.expected).startswith("a whole" if isinstance(default, int) else "a number")


@pytest.mark.parametrize(
    ("section", "name", "value", "expected"),
    [
        ("training", "round_seconds", -1, "a number from 0, at most 86400"),
        ("training", "learning_rate", 0.0, "a number above 0, at most 1000"),
        ("training", "outer_momentum", 1.0, "a number from 0, below 1"),
        ("training", "averaging_timeout_seconds", 4.9, "a number from 5, at most 86400"),
        ("training", "keep_checkpoints", 1, "a whole number from 2 to 1000000"),
        ("training", "batch_size", 0, "a whole number from 1 to 65536"),
        ("training", "target_tokens", 0, f"a whole number from 1 to {2**63 - 1}"),
        ("training", "seed", 2**63, f"a whole number from 0 to {2**63 - 1}"),
        ("model", "context", 7, "a whole number from 8 to 65536"),
        ("model", "layers", 257, "a whole number from 1 to 256"),
    ],
)
def test_limits_are_said(section: str, name: str, value: float, expected: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_settings({**DATA, section: {name: value}})
    assert caught.value.expected == expected


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("training", "outer_momentum", 0),
        ("training", "outer_momentum", 0.9),
        ("training", "weight_decay", 0),
        ("training", "warmup_steps", 0),
        ("training", "seed", 0),
        ("training", "round_seconds", 0),
        ("training", "round_seconds", 1),
        ("training", "learning_rate", 5e-324),
    ],
)
def test_limits_themselves_are_allowed(section: str, name: str, value: float) -> None:
    parsed = parse_settings({**DATA, section: {name: value}})
    found = getattr(parsed.loop if section == "training" else parsed.model, name)
    assert found == value
    assert type(found) is type(getattr(LoopSettings(), name))


def test_the_width_is_a_multiple_of_the_heads() -> None:
    with pytest.raises(
        DeclarationError, match=r"model.width: wrong value \(found 100, expected a multiple of heads \(3\)"
    ):
        parse_settings({**DATA, "model": {"width": 100, "heads": 3}})


@pytest.mark.parametrize(
    ("data", "suggestion"),
    [
        ({"distribution_stratgy": "dataParallel"}, "Did you mean distribution_strategy?"),
        ({"dataset": {}}, "Did you mean datasets?"),
        ({"training": {"learning_rat": 1}}, "Did you mean learning_rate?"),
        ({"model": {"widht": 1}}, "Did you mean width?"),
        ({"zzz": 1}, "Start its name with _ if it is your own"),
    ],
)
def test_an_unknown_name_is_refused_with_the_near_one(data: dict[str, object], suggestion: str) -> None:
    with pytest.raises(DeclarationError, match="no such setting") as caught:
        parse_settings({**DATA, **data})
    assert caught.value.fix == suggestion


def test_unknown_names_far_from_all_are_told_what_there_is() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_settings({**DATA, "training": {"qqq": 1}})
    assert "learning_rate" in str(caught.value.expected)
    with pytest.raises(DeclarationError):
        parse_settings({**DATA, "training": {3: 1}})


def test_a_near_name_of_a_value_is_suggested() -> None:
    with pytest.raises(DeclarationError, match='Did you mean "declared_cores"'):
        parse_settings({**DATA, "resource_allocation": "declared-cores"})
    with pytest.raises(DeclarationError, match='Did you mean "dataParallel"'):
        parse_settings({**DATA, "distribution_strategy": "data_parallel"})


def test_all_that_is_wrong_with_the_training_s_words_is_told_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_settings({**DATA, "resource_allocation": "x", "load_balancing": "y", "data_sharding": 3})
    assert str(caught.value).startswith("3 problems")


def test_all_that_is_wrong_with_the_settings_is_told_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_settings(
            {
                "modle": {},
                "fault_tolerance": 1,
                "training": {"seed": -1, "batch_size": 0},
                "model": {"width": 100, "heads": 3},
                "worker_port": 80,
            }
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == "7 problems"
    for word in ("modle", "fault_tolerance", "datasets", "model.width", "seed", "batch_size", "worker_port"):
        assert sum(f"group_data: {word}" in line or f"training.{word}" in line for line in lines) == 1, word


def test_names_of_one_s_own_pyinfra_s_and_the_connector_s_are_left_alone() -> None:
    parse_settings({**DATA, "_mine": 1, "_sudo": True, "ssh_user": "x", "tailscale_check_timeout": 3})


def test_without_a_word_the_specification_s_defaults_hold() -> None:
    training = parse_settings(DATA).training
    assert training.coordination_protocol.value == "eneGossip"
    assert training.storage_backend.value == "googleDriveTopological"


def test_the_names_of_settings_are_known() -> None:
    assert {"datasets", "training", "model", "wheels"} <= SETTINGS


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(SETTINGS)), anything))
def test_whatever_group_data_says_it_is_settings_or_one_clear_refusal(data: dict[str, object]) -> None:
    try:
        settings = parse_settings(data)
    except DeclarationError:
        return
    assert all(math.isfinite(value) for value in vars(settings.loop).values())


@given(st.dictionaries(st.sampled_from([f.name for f in fields(LoopSettings)]), st.integers() | st.floats()))
def test_whatever_numbers_the_training_has_they_are_of_their_types(data: dict[str, object]) -> None:
    try:
        loop = parse_settings({**DATA, "training": data}).loop
    except DeclarationError:
        return
    for field in fields(LoopSettings):
        assert type(getattr(loop, field.name)) is type(field.default)


@pytest.mark.parametrize(
    ("data", "field", "other"),
    [
        ({"worker_port": 45_003}, r"engine\.gossip_port", "worker_port"),
        ({"chunk_port": 45_005}, r"engine\.beacon_port", "chunk_port"),
        ({"engine": {"gossip_port": 45_002}}, r"engine\.gossip_port", "chunk_port"),
        ({"engine": {"beacon_port": 45_003}}, r"engine\.beacon_port", r"engine\.gossip_port"),
        ({"worker_port": 45_004}, "worker_port", "Serf's answers on loopback"),
    ],
)
def test_no_two_services_listen_on_one_port(data: dict[str, Any], field: str, other: str) -> None:
    with pytest.raises(DeclarationError, match=rf"group_data: {field}: .*found 4500\d.*that of {other}"):
        parse_settings({"datasets": {"natural": "x"}, **data})
