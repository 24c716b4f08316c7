"""Which chunks each host is to have, which it lacks, and how its owners are said in few words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.planning.distribution import distribution_of
from tailtrain.planning.node_config import spans_of
from tailtrain.planning.observed import Observation
from tailtrain.planning.placement import Chunk, place
from tailtrain.planning.shares import apportion
from tailtrain.planning.sharing import coming_to, shares_of
from tests.plans.situations import DATASETS, NAMES, SEVENTH, Situation, dataset

if TYPE_CHECKING:
    from tailtrain.planning.distribution import Distribution

TRAIN = {chunk.sha256 for each in DATASETS for chunk in each.train}
HELDOUT = {chunk.sha256 for each in DATASETS for chunk in each.heldout}


def distribution(situation: Situation) -> Distribution:
    declared = situation.declared()
    answers = {n: each for n, each in situation.observed.items() if isinstance(each, Observation)}
    shares = shares_of(declared, situation.datasets, answers, "0" * 16)
    return distribution_of(
        declared.settings, shares.weights, situation.datasets, shares.placements, answers, situation.paths
    )


def wanted(found: Distribution) -> dict[str, set[str]]:
    return {name: {chunk.sha256 for chunk in chunks} for name, chunks in found.wanted.items()}


def owned(situation: Situation) -> dict[str, set[str]]:
    plan = situation.plan()
    return {
        name: {sha256 for placed in plan.placements.values() for sha256, _, _ in placed.get(name, ())}
        for name in NAMES
    }


@pytest.mark.parametrize("replicas", [1, 2, 3, 6, 100])
def test_as_many_hosts_as_wanted_have_each_training_chunk(replicas: int) -> None:
    situation = Situation().with_settings(replicas=replicas)
    found = distribution(situation)
    owners = Counter(sha256 for mine in owned(situation).values() for sha256 in mine)
    having = Counter(sha256 for mine in wanted(found).values() for sha256 in mine & TRAIN)
    assert having == {sha256: max(min(replicas, 6), owners[sha256]) for sha256 in TRAIN}


def test_each_host_has_what_it_owns_its_copies_and_all_that_is_held_out() -> None:
    situation = Situation()
    found = distribution(situation)
    mine = owned(situation)
    for name, chunks in wanted(found).items():
        assert chunks == mine[name] | found.copies.get(name, frozenset()) | HELDOUT
        assert not mine[name] & found.copies.get(name, frozenset())
    assert found.sizes.keys() == TRAIN | HELDOUT


def test_without_copies_there_is_none() -> None:
    assert distribution(Situation().with_settings(replicas=1)).copies == {}


def test_where_data_are_not_shared_out_every_host_has_all_and_nothing_is_a_copy() -> None:
    found = distribution(Situation().with_settings(data_sharding=False))
    assert all(chunks == TRAIN | HELDOUT for chunks in wanted(found).values())
    assert found.copies == {}


def test_a_host_lacks_what_it_is_to_have_and_has_not() -> None:
    situation = Situation().applied()
    had = situation.answer("judge").chunks
    lost = frozenset(sorted(had)[:3])
    found = distribution(situation.on("judge", chunks=had - lost))
    assert {chunk.sha256 for chunk in found.lacking["judge"]} == lost
    assert [each.chunk for each in found.deliveries["judge"]] == list(found.lacking["judge"])
    assert not any(found.lacking[name] for name in NAMES if name != "judge")


def test_a_host_that_is_away_keeps_its_copies_and_nobody_gets_them_instead() -> None:
    situation = Situation().applied(state="training", unit="active")
    before = distribution(situation)
    away = distribution(situation.unreachable("judge", "no answer"))
    assert away.copies == before.copies
    assert away.wanted == before.wanted
    assert "judge" not in away.lacking
    assert not any(away.lacking.values())


def test_a_host_that_is_away_is_no_source() -> None:
    situation = Situation().applied().unreachable("judge", "no answer").add(SEVENTH)
    found = distribution(situation)
    sources = {source for each in found.deliveries["lighthouse"] for source in each.sources}
    assert sources
    assert "judge" not in sources


def test_one_file_for_two_domains_is_kept_often_enough_as_well() -> None:
    twice = dataset("natural", "prose.parquet", (5, 6, 7), (2,))
    situation = Situation(datasets=(twice, twice)).with_settings(
        datasets={"natural": "prose.parquet"}, replicas=3
    )
    found = distribution(situation)
    having = Counter(sha256 for mine in wanted(found).values() for sha256 in mine)
    assert all(having[chunk.sha256] >= 3 for chunk in twice.train)


def test_what_comes_is_known_before_the_paths_are() -> None:
    situation = Situation()
    coming = coming_to(situation.declared(), situation.datasets, situation.material, situation.observed)
    assert coming == {host.node.hostname: host.deliveries for host in situation.plan().hosts}
    done = Situation().applied()
    assert coming_to(done.declared(), done.datasets, done.material, done.observed) == {}


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any),
    st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any),
)
def test_spans_say_what_the_ranges_say(rows: list[int], first: list[int], then: list[int]) -> None:
    """After a change of the fleet too, which leaves nodes with rows here and there."""
    data = dataset("natural", "x", tuple(rows), (1,))
    chunks = [Chunk(chunk.sha256, chunk.rows) for chunk in data.shared]
    rows = [chunk.rows for chunk in data.shared]
    quotas = [dict(zip("abcd", apportion(sum(rows), each), strict=False)) for each in (first, then)]
    placement = place(chunks, quotas[1], place(chunks, quotas[0]))
    order = {chunk.sha256: index for index, chunk in enumerate(data.shared)}
    for node, spans in spans_of(data, placement).items():
        expanded = [
            (index, row)
            for i, start, j, stop in spans
            for index in range(i, j + 1)
            for row in range(start if index == i else 0, stop if index == j else rows[index])
        ]
        assert expanded == [
            (order[sha256], row) for sha256, start, stop in placement[node] for row in range(start, stop)
        ]
        # As few as can be: none goes on where the one before it ends.
        ends = [(j, stop) if stop < rows[j] else (j + 1, 0) for _, _, j, stop in spans]
        assert not set(ends) & {(i, start) for i, start, _, _ in spans}
