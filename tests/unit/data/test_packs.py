"""Packs: what lies where follows from the list of chunks alone; nothing is lost or too large."""

from __future__ import annotations

import hashlib
import itertools

from hypothesis import given
from hypothesis import strategies as st

from tailtrain.data.packs import Place, packs_of, places_of

MIB = 1 << 20


def named(sizes: list[int]) -> list[tuple[str, int]]:
    return [(hashlib.sha256(str(number).encode()).hexdigest(), size) for number, size in enumerate(sizes)]


SIZES = st.lists(st.integers(1, 64 * MIB), max_size=80)


@given(SIZES)
def test_every_chunk_is_in_one_pack_in_order(sizes: list[int]) -> None:
    chunks = named(sizes)
    assert [chunk for pack in packs_of(chunks) for chunk in pack.chunks] == chunks


@given(SIZES)
def test_packs_have_the_size_of_their_chunks_and_at_most_the_limit(sizes: list[int]) -> None:
    for pack in packs_of(named(sizes)):
        assert pack.size == sum(size for _, size in pack.chunks)
        assert pack.size <= 32 * MIB or len(pack.chunks) == 1


@given(SIZES)
def test_no_two_neighbouring_packs_would_fit_into_one(sizes: list[int]) -> None:
    """So there are at most about twice as few packs as could be."""
    packs = packs_of(named(sizes))
    for pack, following in itertools.pairwise(packs):
        assert pack.size + following.chunks[0][1] > 32 * MIB


@given(SIZES)
def test_places_lead_to_the_chunk(sizes: list[int]) -> None:
    packs = packs_of(named(sizes))
    places = places_of(packs)
    assert set(places) == {sha256 for pack in packs for sha256, _ in pack.chunks}
    for pack in packs:
        offset = 0
        for sha256, size in pack.chunks:
            assert places[sha256] == Place(pack.name, offset)
            offset += size
        assert offset == pack.size


@given(SIZES, st.data())
def test_a_pack_is_named_by_what_is_in_it(sizes: list[int], data: st.DataObject) -> None:
    chunks = named(sizes)
    names = [pack.name for pack in packs_of(chunks)]
    assert names == [pack.name for pack in packs_of(list(chunks))]
    assert len(set(names)) == len(names)
    if len(chunks) > 1:
        shuffled = data.draw(st.permutations(chunks).filter(lambda order: order != chunks))
        assert [pack.name for pack in packs_of(shuffled)] != names


@given(SIZES, st.integers(1, 64 * MIB))
def test_a_chunk_added_at_the_end_changes_the_last_pack_alone(sizes: list[int], more: int) -> None:
    """As long as the data set stays under 32 GiB, a longer one shares all packs but the last."""
    before, after = packs_of(named(sizes)), packs_of(named([*sizes, more]))
    assert after[: max(len(before) - 1, 0)] == before[:-1]


def test_of_a_large_data_set_there_are_about_a_thousand_packs_and_of_a_huge_one_they_stay_transferable() -> (
    None
):
    of_100_gib = packs_of(named([64 * MIB] * 1600))
    assert 1024 <= len(of_100_gib) <= 1600
    of_1_tib = packs_of(named([64 * MIB] * 16_384))
    assert {pack.size for pack in of_1_tib} == {256 * MIB}


def test_a_chunk_larger_than_a_pack_is_a_pack_of_its_own() -> None:
    small, large = 5 * MIB, 300 * MIB
    packs = packs_of(named([small, large, small, small]))
    assert [pack.size for pack in packs] == [small, large, 2 * small]


def test_nothing_makes_no_pack() -> None:
    assert packs_of([]) == ()
    assert places_of([]) == {}
