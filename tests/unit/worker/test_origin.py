"""What nodes must have in common: who differs in run, code, data, plan or version is named and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.ledger import PROTOCOL
from tailtrain.worker.peers.origin import Origin

OWN = Origin(run="0123456789abcdef", code="c0de", data="da7a", plan="91a9")
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_message_of_the_same_origin_arrives_as_it_was_said() -> None:
    assert OWN.admit(OWN.stamp({"round": 5}), "a") == {"round": 5}


@pytest.mark.parametrize(
    ("part", "words"),
    [("run", "another run"), ("code", "other code"), ("data", "other data"), ("plan", "another plan")],
)
def test_whoever_differs_is_told_apart_by_name(part: str, words: str) -> None:
    other = replace(OWN, **{part: "feed"})
    with pytest.raises(PeerError, match=words) as caught:
        OWN.admit(other.stamp({}), "qfox")
    error = caught.value
    assert (error.host, error.field, error.found) == ("qfox", part, "feed")
    assert error.expected == getattr(OWN, part)
    assert "Deploy to all nodes" in str(error)


def test_another_version_of_the_protocol_is_named() -> None:
    with pytest.raises(PeerError, match="protocol version") as caught:
        OWN.admit({**OWN.stamp({}), "protocol": PROTOCOL - 1}, "qfox")
    assert (caught.value.host, caught.value.found) == ("qfox", PROTOCOL - 1)


@given(raw=plain)
def test_nothing_without_a_stamp_is_let_in(raw: Any) -> None:
    with pytest.raises(PeerError):
        OWN.admit(raw, "a")


@given(field=st.sampled_from(sorted(OWN.stamp({}))), value=plain)
def test_a_damaged_stamp_is_refused(field: str, value: Any) -> None:
    stamped = OWN.stamp({"round": 5})
    if field == "said" or value == stamped[field]:
        return
    with pytest.raises(PeerError):
        OWN.admit({**stamped, field: value}, "a")
    del stamped[field]
    with pytest.raises(PeerError):
        OWN.admit(stamped, "a")
