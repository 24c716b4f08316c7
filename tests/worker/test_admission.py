"""What is let into an averaging: norms within bounds, parts that are what was said, in an exact form."""

from __future__ import annotations

import asyncio
import math
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.data_config import RowRange
from tailtrain.worker.ledger import Contribution, Entry
from tailtrain.worker.peers.admission import Bounds, Norms, Request, read_request
from tailtrain.worker.reading.shards import Shard, Shards

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # hivemind makes use of what torch deprecates
    from tailtrain.worker.peers.compression import form_of, pack, part_bytes, unpack
    from tailtrain.worker.peers.reducing import PartReducer, Tally, reducer_parts

SHARDS = Shards(
    "a", [Shard("natural", node, [RowRange("0" * 64, 0, 90)], seed=1) for node in "ab"], taken_over=True
)
WORK = Contribution("a", 3, Entry(100, 10, 3), 50, 5, 2.5, 2.0, 1.0, 0.5, 1e9, "0" * 64, {}, {}, {})
REQUEST = Request(WORK, Norms(20.0, 1.5), has_base=True, refuses=frozenset({"b"}))
BOUNDS = Bounds(Norms(20.0, 1.0), tokens=1000, batch_tokens=100, step_reach=0.5)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_request_arrives_as_it_was_sent() -> None:
    assert read_request(REQUEST.to_message(SHARDS), SHARDS, "a") == REQUEST


@given(raw=plain)
def test_whatever_arrives_only_an_acceptable_request_passes(raw: Any) -> None:
    with pytest.raises(PeerError):
        read_request(raw, SHARDS, "a")


@given(field=st.sampled_from(sorted(REQUEST.to_message(SHARDS))), value=plain)
def test_a_damaged_request_is_refused_or_harmless(field: str, value: Any) -> None:
    message = REQUEST.to_message(SHARDS)
    try:
        read = read_request({**message, field: value}, SHARDS, "a")
    except PeerError:
        pass
    else:  # another number, another answer, other known names
        assert math.isfinite(read.norms.weights)
        assert math.isfinite(read.norms.change)
        assert read.refuses <= {"a", "b"}
    del message[field]
    with pytest.raises(PeerError):
        read_request(message, SHARDS, "a")


@given(field=st.sampled_from(sorted(WORK.to_message(SHARDS))), value=plain)
def test_damaged_work_raises_nothing_else(field: str, value: Any) -> None:
    message = REQUEST.to_message(SHARDS)
    with suppress(PeerError):
        read_request({**message, "work": {**message["work"], field: value}}, SHARDS, "a")


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        (Norms(200.0, 10.0), 1000),  # ten times the receiver's own
        (Norms(20.0, 10.0), 1),  # for less work too
        (Norms(20.0, 90.0), 9000),  # nine times the work
        (Norms(20.0, 0.0), 0),
        (Norms(250.0, 50.0), 9600),  # as far as the optimizer reaches, though the receiver trained little
    ],
)
def test_norms_within_bounds_are_accepted(said: Norms, tokens: int) -> None:
    BOUNDS.check(said, tokens, "b")


@pytest.mark.parametrize(
    ("said", "tokens", "what"),
    [
        (Norms(20.0, 10.1), 1000, "its change"),
        (Norms(20.0, 91.0), 9000, "its change"),
        (Norms(211.0, 1.0), 1000, "its weights"),
        (Norms(math.nan, 1.0), 1000, "its weights"),
        (Norms(20.0, math.inf), 1000, "its change"),
    ],
)
def test_norms_out_of_bounds_are_refused_by_name(said: Norms, tokens: int, what: str) -> None:
    with pytest.raises(PeerError, match="out of all proportion") as caught:
        BOUNDS.check(said, tokens, "b")
    assert caught.value.host == "b"
    assert what in str(caught.value.field)


def test_a_receiver_that_trained_nothing_accepts_what_the_optimizer_can_do() -> None:
    idle = replace(BOUNDS, own=Norms(20.0, 0.0), tokens=0)
    idle.check(Norms(20.0, 0.5 * (9600 / 100 + 4)), 9600, "b")
    with pytest.raises(PeerError):
        idle.check(Norms(20.0, 0.5 * (9600 / 100 + 4) + 0.1), 9600, "b")


def test_norms_are_measured() -> None:
    weights, base = torch.randn(3_000_000), torch.randn(3_000_000)
    found = Norms.of(weights, base)
    assert found.weights == pytest.approx(float(weights.double().norm()), rel=1e-4)
    assert found.change == pytest.approx(float((weights - base).double().norm()), rel=1e-4)


def test_parts_may_be_as_large_as_was_said_and_no_larger() -> None:
    parts = torch.randn(1000).split(100)
    norm = float(torch.cat(parts).norm())
    exact, small = Tally(norm), Tally(0.97 * norm)
    for part in parts[:-1]:
        exact.take(part)
        small.take(part)
    exact.take(parts[-1])
    with pytest.raises(PeerError, match="larger than what was said"):
        small.take(parts[-1])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_part_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(PeerError, match="not finite"):
        Tally(1e9).take(torch.tensor([1.0, value]))


@pytest.mark.parametrize(
    ("compression", "bytes_each", "off"),
    [("none", 4.0, 0.0), ("fp16", 2.0, 2**-11), ("8-bit", 1.004, 1 / 254)],
)
@pytest.mark.parametrize("size", [1, 1023, 1024, 130_000])
def test_what_travels_comes_back_within_its_bound(
    compression: str, bytes_each: float, off: float, size: int
) -> None:
    form = form_of(compression, differences=True)
    values = torch.randn(size, generator=torch.Generator().manual_seed(size))
    values[: size // 2] *= 100.0  # layers of different sizes in one part
    message = pack(values, form)
    back = unpack(message, form, values.shape)
    for block in range(0, size, 1024):
        here = slice(block, block + 1024)
        assert float((back[here] - values[here]).abs().max()) <= off * float(values[here].abs().max()) * 1.001
    assert len(message.buffer) <= bytes_each * size + 4
    assert torch.equal(unpack(pack(torch.zeros(size), form), form, values.shape), torch.zeros(size))


@pytest.mark.parametrize("compression", ["none", "fp16", "8-bit"])
def test_values_that_are_no_numbers_do_not_become_some(compression: str) -> None:
    form = form_of(compression, differences=True)
    broken = torch.tensor([1.0, math.nan, 2.0])
    with pytest.raises(PeerError, match="not finite"):
        Tally(1e9).take(unpack(pack(broken, form), form, broken.shape))


@given(
    sent=st.sampled_from(["none", "fp16", "8-bit"]),
    expected=st.sampled_from(["none", "fp16", "8-bit"]),
    buffer=st.binary(max_size=40),
    dtype=st.sampled_from(["float32", "float64", "int8", "object", "nothing", ""]),
    size=st.lists(st.integers(0, 9), max_size=2),
)
def test_a_damaged_part_raises_nothing_else(
    sent: str, expected: str, buffer: bytes, dtype: str, size: list[int]
) -> None:
    form = form_of(expected, differences=True)
    message = pack(torch.ones(4), form_of(sent, differences=True))
    message.buffer, message.dtype = buffer, dtype
    del message.size[:]
    message.size.extend(size)
    try:
        part = unpack(message, form, torch.Size([4]))
    except PeerError:
        return
    assert part.shape == (4,)
    assert part.dtype == torch.float32


def test_whole_weights_never_travel_in_eight_bits() -> None:
    assert form_of("8-bit", differences=False) is form_of("fp16", differences=True)


@given(values=st.integers(1, 10**9), compression=st.sampled_from(["none", "fp16", "8-bit"]))
def test_parts_are_neither_tiny_nor_huge(values: int, compression: str) -> None:
    assert 1 << 14 <= part_bytes(values, form_of(compression, differences=True)) <= 1 << 19


def test_reducers_share_what_is_missing() -> None:
    fixed = {"a": 0.5, "b": 0.3, "c": 0.2}
    assert reducer_parts(["a", "b", "c"], fixed, None) == [0.5, 0.3, 0.2]
    assert reducer_parts(["a", "c", "d"], fixed, None) == pytest.approx([5 / 7, 2 / 7, 0.0])
    assert reducer_parts(["d", "e"], fixed, None) == [0.5, 0.5]
    assert reducer_parts(["a", "b"], {}, None) == [0.5, 0.5]
    assert reducer_parts(["a", "b"], fixed, "b") == [0.0, 1.0]


@pytest.mark.parametrize("compression", ["none", "8-bit"])
def test_the_mean_does_not_depend_on_the_order_of_arrival(compression: str) -> None:
    form = form_of(compression, differences=True)
    weights = [3.0, 1e-6, 70_001.0, 11.0]
    parts = [torch.randn(5000, generator=torch.Generator().manual_seed(index)) for index in range(4)]

    async def reduce(order: list[int]) -> list[torch.Tensor]:
        reducer = PartReducer([parts[0].shape], weights, form)
        answers = await asyncio.gather(*(reducer.add(sender, 0, parts[sender]) for sender in order))
        assert len({message.SerializeToString() for message, _ in answers}) == 1
        return [mean for _, mean in answers]

    one, *others = [
        mean for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]) for mean in asyncio.run(reduce(order))
    ]
    assert all(torch.equal(one, other) for other in others)
    exact = sum(part.double() * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights)
    limit = 1e-6 if compression == "none" else float(exact.abs().max()) / 254 + 1e-6
    assert float((one - exact).abs().max()) <= limit
