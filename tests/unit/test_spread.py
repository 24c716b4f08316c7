"""Shares have something of all parts of a file, and neighbours stay together in large data sets."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.planning.placement import Chunk
from tailtrain.spread import spread


def _chunks(count: int) -> list[Chunk]:
    return [Chunk(hashlib.sha256(str(number).encode()).hexdigest(), 1) for number in range(count)]


@given(count=st.integers(0, 2000))
def test_each_chunk_is_there_once_and_the_order_is_always_the_same(count: int) -> None:
    chunks = _chunks(count)
    found = spread(chunks)
    assert sorted(found) == sorted(chunks)
    assert found == spread(tuple(chunks))


@pytest.mark.parametrize("count", [256, 511, 5000])
def test_a_sixteenth_has_chunks_of_all_quarters_of_the_file(count: int) -> None:
    chunks = _chunks(count)
    found = spread(chunks)
    share = [chunks.index(chunk) for chunk in found[: count // 16]]
    assert {place * 4 // count for place in share} == {0, 1, 2, 3}


def test_neighbours_of_a_large_file_stay_together() -> None:
    """Of 5,120 chunks runs of sixteen: they lie in one pack, and are read at once."""
    chunks = _chunks(5120)
    places = [chunks.index(chunk) for chunk in spread(chunks)]
    together = sum(later == earlier + 1 for earlier, later in pairwise(places))
    assert together >= 5120 - 320
