"""Members, tags and round trips, as the agent tells them and as peers may send them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.gossip.members import (
    MOST_TAG_BYTES,
    Coordinate,
    Tags,
    bytes_of,
    read_coordinate,
    read_member,
    read_tags,
    round_trip,
)

TAGS = st.builds(
    Tags,
    role=st.sampled_from(["primary", "compute"]),
    cores=st.integers(1, 512),
    gpu=st.booleans(),
    run=st.text("0123456789abcdef", max_size=64),
    round=st.integers(-1, 10**9),
    tokens_per_second=st.integers(0, 10**9).map(lambda value: value / 10),
    health=st.integers(0, 1000).map(lambda value: value / 1000),
)
RAW = {"Name": "a", "Addr": b"\x7f\x00\x00\x02", "Port": 7946, "Tags": {"role": "x"}, "Status": "alive"}
COORDINATES = st.builds(
    Coordinate,
    vector=st.lists(st.floats(-1, 1), min_size=8, max_size=8),
    height=st.floats(1e-5, 1),
    adjustment=st.floats(-1, 1),
    error=st.floats(0, 1.5),
)


@given(TAGS)
def test_tags_arrive_as_they_were_said_and_fit(tags: Tags) -> None:
    raw = tags.to_serf()
    assert read_tags({**raw, "a later tag": "x"}, "a") == tags
    assert sum(len(key) + len(value) + 4 for key, value in raw.items()) < MOST_TAG_BYTES


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("role", "boss"),
        ("cores", "0"),
        ("cores", "1.5"),
        ("cores", "many"),
        ("gpu", "2"),
        ("run", "../x"),
        ("run", "a" * 65),
        ("round", "-2"),
        ("tps", "nan"),
        ("tps", "inf"),
        ("tps", "-1"),
        ("health", "1.1"),
        ("health", ""),
    ],
)
def test_each_tag_is_checked_and_named(tag: str, value: str) -> None:
    raw = {**Tags(role="compute", cores=2, gpu=True).to_serf(), tag: value}
    with pytest.raises(PeerError) as caught:
        read_tags(raw, "delta")
    assert caught.value.host == "delta"
    assert caught.value.field == tag
    del raw[tag]
    with pytest.raises(PeerError, match=tag):
        read_tags(raw, "delta")


@pytest.mark.parametrize(
    "address", [b"\x7f\x00\x00\x02", "\x7f\x00\x00\x02", b"\0" * 10 + b"\xff\xff\x7f\0\0\2"]
)
def test_a_member_is_read_however_go_keeps_its_address(address: Any) -> None:
    member = read_member({**RAW, "Addr": address})
    assert (member.name, member.address, member.status) == ("a", "127.0.0.2:7946", "alive")
    assert read_member({**RAW, "Tags": None}).tags == {}


@pytest.mark.parametrize(
    "raw", [None, {}, {**RAW, "Status": "odd"}, {**RAW, "Addr": 7}, {**RAW, "Port": "x"}]
)
def test_what_is_no_member_is_refused(raw: Any) -> None:
    with pytest.raises(PeerError):
        read_member(raw)


@given(COORDINATES, COORDINATES)
def test_round_trips_are_positive_and_the_same_both_ways(one: Coordinate, other: Coordinate) -> None:
    assert round_trip(one, other) == pytest.approx(round_trip(other, one))
    assert round_trip(one, other) > 0


def test_a_round_trip_is_distance_heights_and_adjustments() -> None:
    one = Coordinate((0.0, 0.003), 0.001, 0.0005, 0.1)
    other = Coordinate((0.004, 0.0), 0.002, -0.0001, 0.1)
    assert round_trip(one, other) == pytest.approx(0.005 + 0.003 + 0.0004)
    with pytest.raises(PeerError):
        round_trip(one, Coordinate((0.0,), 0.1, 0.0, 1.0))


def test_coordinates_are_checked() -> None:
    said = {"Vec": [0.1] * 8, "Height": 1e-5, "Adjustment": 0.0, "Error": 1.5}
    assert read_coordinate({"Ok": True, "Coord": said}, "a") == Coordinate((0.1,) * 8, 1e-5, 0.0, 1.5)
    assert read_coordinate({"Ok": False, "Coord": None}, "a") is None
    for raw in (None, {}, {"Ok": True}, {"Ok": True, "Coord": {**said, "Height": float("nan")}}):
        with pytest.raises(PeerError):
            read_coordinate(raw, "a")


def test_bytes_of_any_kind_survive_as_text() -> None:
    assert bytes_of(b"\xff\x00".decode(errors="surrogateescape")) == b"\xff\x00"
    assert bytes_of(None) == b""
    with pytest.raises(TypeError):
        bytes_of(7)
