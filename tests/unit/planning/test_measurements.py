"""What a host says that it measured, taken no further than its form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.planning.observed import Measured
from tailtrain.planning.topology.measurements import read_measured

GOOD: dict[str, Any] = {
    "run": "a" * 16,
    "parameters": 857_000,
    "tokens_per_second": 812.5,
    "bytes_per_second": 3e6,
    "averaging_seconds": 1.2,
    "round_seconds": 61,
    "at": 1.7e9,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def test_what_a_worker_writes_is_read() -> None:
    assert read_measured(GOOD) == Measured("a" * 16, 857_000, 812.5, 3e6, 1.2, 61.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"run": "../../etc"},
        {"run": 7},
        {"parameters": 0},
        {"parameters": True},
        {"parameters": 1.5},
        {"tokens_per_second": float("nan")},
        {"tokens_per_second": float("inf")},
        {"bytes_per_second": -1},
        {"averaging_seconds": "1"},
        {"round_seconds": False},
        {"round_seconds": 1e300},
        {"tokens_per_second": None},
    ],
)
def test_another_form_is_none(wrong: dict[str, Any]) -> None:
    assert read_measured({**GOOD, **wrong}) is None


def test_a_field_that_is_missing_is_another_form() -> None:
    for name in set(GOOD) - {"at"}:
        assert read_measured({key: value for key, value in GOOD.items() if key != name}) is None
    assert read_measured({}) is None


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), JSON))
def test_nothing_that_a_host_says_raises(changed: dict[str, Any]) -> None:
    read_measured({**GOOD, **changed})
    read_measured(json.loads(json.dumps({**GOOD, **changed})))
