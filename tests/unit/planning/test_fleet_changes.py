"""A fleet that changes: hosts come, go, change their weight, are lost and come back.

Every change is planned and carried out as a whole (`Situation`), and held against what no plan could do
better: the fewest records that any placement with these quotas moves.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.planning.placement import Chunk, Placement, Range, place
from tailtrain.planning.shares import apportion
from tailtrain.spec import NetworkNode, NodeReserve, NodeRole
from tests.plans.situations import NAMES, Situation, dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.plan import Plan


def host(name: str, cores: int) -> NetworkNode:
    role = NodeRole.PRIMARY if name == "a" else NodeRole.COMPUTE
    return NetworkNode(name, "100.x.x.x", cores, 64, has_gpu=False, role=role, storage_gb=500)


def fleet(data: PlannedDataset, *, replicas: int = 2, **cores: int) -> Situation:
    """A fleet that is training on one data set."""
    nodes = tuple(host(name, count) for name, count in cores.items())
    situation = Situation(nodes=nodes, datasets=(data,))
    situation.with_settings(datasets={data.domain: data.file}, replicas=replicas)
    return situation.applied(state="training", unit="active")


def owners(data: PlannedDataset, plan: Plan) -> list[str]:
    """Who owns each record, in reading order; fails where a record has none or two."""
    first = dict(
        zip((c.sha256 for c in data.train), itertools.accumulate(c.rows for c in data.train), strict=True)
    )
    starts = {chunk.sha256: first[chunk.sha256] - chunk.rows for chunk in data.train}
    found = [""] * data.train_records
    for name, ranges in plan.placements[data.domain].items():
        for chunk, start, stop in ranges:
            for record in range(starts[chunk] + start, starts[chunk] + stop):
                assert not found[record], f"{name} and {found[record]} own record {record}"
                found[record] = name
    assert all(found)
    return found


def quotas(data: PlannedDataset, plan: Plan) -> dict[str, int]:
    return {each.node.hostname: each.quotas[data.domain] for each in plan.hosts}


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


def least(before: Sequence[str], wanted: Mapping[str, int]) -> int:
    """What the growing hosts lack: fewer records cannot move."""
    return sum(max(0, quota - before.count(name)) for name, quota in wanted.items())


# The example of six hosts with weights 1, 1, 2, 1/2, 1/2 and 4, with the data in 1,024 chunks.
EXAMPLE = dataset("natural", "prose.parquet", (36,) * 1024, (5,))
WEIGHTS = {"a": 2, "b": 2, "c": 4, "d": 1, "e": 1, "f": 8}


EXAMPLE_CHANGES: dict[str, tuple[Callable[[Situation], object], float]] = {
    "c is lost": (lambda situation: situation.remove("c"), 22.2),
    "g comes": (lambda situation: situation.add(host("g", 2)), 10.0),
    "f has half its cores": (lambda situation: situation.declare("f", cores=4), 15.9),
}


@pytest.mark.parametrize("change", EXAMPLE_CHANGES)
def test_the_example_moves_what_it_must_and_no_more(change: str) -> None:
    do, percent = EXAMPLE_CHANGES[change]
    situation = fleet(EXAMPLE, **WEIGHTS)
    before = owners(EXAMPLE, situation.plan())
    do(situation)
    plan = situation.plan()
    after = owners(EXAMPLE, plan)
    assert moved(before, after) == least(before, quotas(EXAMPLE, plan))
    assert round(100 * moved(before, after) / len(before), 1) == percent
    # The plan says the same of itself, whatever copies move besides.
    assert plan.moved["natural"] == plan.least_moved["natural"] == moved(before, after)


@pytest.mark.parametrize("change", EXAMPLE_CHANGES)
def test_without_copies_one_chunk_more_for_each_host_is_sent_at_most(change: str) -> None:
    do, percent = EXAMPLE_CHANGES[change]
    situation = fleet(EXAMPLE, replicas=1, **WEIGHTS)
    before = owners(EXAMPLE, situation.plan())
    do(situation)
    plan = situation.plan()
    records = moved(before, owners(EXAMPLE, plan))
    assert round(100 * records / len(before), 1) == percent
    # Chunks are sent whole, and each once.
    sent = sum(len(each.chunks) for each in plan.hosts)
    assert sent * 36 <= records + 36 * len(plan.hosts)


def test_nothing_moves_where_nothing_changed() -> None:
    plan = fleet(EXAMPLE, **WEIGHTS).plan()
    assert not any(each.chunks for each in plan.hosts)
    assert plan.moved == {"natural": 0}


SMALL = dataset("natural", "prose.parquet", (7, 1, 12, 5, 9, 3), (2,))


@dataclass
class Changes:
    """Changes one after another, each carried out; hosts are named a to h."""

    situation: Situation
    gone: list[NetworkNode] = field(default_factory=list)

    def do(self, what: str, which: int, cores: int) -> None:
        nodes = self.situation.nodes
        others = [node for node in nodes if node.role is not NodeRole.PRIMARY]
        free = [name for name in "bcdefgh" if name not in {node.hostname for node in nodes}]
        if what == "add" and free:
            self.situation.add(host(free[which % len(free)], cores))
        elif what == "remove" and others:
            self.situation.remove(others[which % len(others)].hostname)
        elif what == "weigh":
            name = nodes[which % len(nodes)].hostname
            self.situation.declare(name, cores=cores).hardware(name, cores=cores, usable_cores=float(cores))


def steps() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    kinds = st.sampled_from(["add", "remove", "weigh"])
    return st.lists(st.tuples(kinds, st.integers(0, 6), st.integers(1, 8)), min_size=1, max_size=4)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=4), steps())
def test_whatever_changes_each_record_has_one_owner_and_the_fewest_move(
    cores: list[int], changes: list[tuple[str, int, int]]
) -> None:
    """One after another, so that fragments that earlier changes left are in the way of later ones."""
    all_cores = dict(zip("abcdefgh", cores, strict=False))
    chain = Changes(fleet(SMALL, replicas=1, **all_cores))
    fragments = len(all_cores)
    for change in changes:
        before = owners(SMALL, chain.situation.plan())
        chain.do(*change)
        plan = chain.situation.plan()
        after, wanted = owners(SMALL, plan), quotas(SMALL, plan)
        assert {name: after.count(name) for name in wanted} == wanted
        assert moved(before, after) == least(before, wanted)
        # Whole chunks are sent: at each boundary between two owners, one more than must be.
        fragments += len(wanted)
        sent = sum(chunk.rows for each in plan.hosts for chunk in each.chunks if chunk in SMALL.train)
        assert sent <= moved(before, after) + fragments * max(chunk.rows for chunk in SMALL.train)
        chain.situation.applied(state="training", unit="active")


@settings(deadline=None, max_examples=25)
@given(st.sets(st.integers(0, 5)), steps())
def test_a_change_that_only_some_hosts_got_ends_with_one_owner_each(
    reached: set[int], changes: list[tuple[str, int, int]]
) -> None:
    """A deploy was cut short: some hosts have the new configuration, others the old one."""
    chain = Changes(fleet(SMALL, a=4, b=2, c=2))
    chain.do(*changes[0])
    old = dict(chain.situation.observed)
    chain.situation.applied(state="training", unit="active")
    names = [node.hostname for node in chain.situation.nodes]
    for number, name in enumerate(names):
        if number not in reached:
            chain.situation.observed[name] = old[name]
    plan = chain.situation.plan()
    wanted = quotas(SMALL, plan)
    found = owners(SMALL, plan)
    assert {name: found.count(name) for name in wanted} == wanted
    # Carried out whole, there is nothing left to move.
    after = chain.situation.applied(state="training", unit="active").plan()
    assert owners(SMALL, after) == found
    assert after.moved == {"natural": 0}


def assignments(wanted: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Every way to give records to hosts in these numbers."""
    everyone = [name for name, quota in wanted.items() for _ in range(quota)]
    return iter(set(itertools.permutations(everyone)))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
)
def test_no_placement_at_all_moves_fewer(rows: list[int], weights: list[int], new_weights: list[int]) -> None:
    """Against every placement there is, one record at a time."""
    chunks = [Chunk(str(number), count) for number, count in enumerate(rows)]
    total = sum(rows)
    if total > 7 or not any(weights) or not any(new_weights):  # 7! ways are enough
        return
    shares, new_shares = (
        dict(zip("abc", apportion(total, each), strict=False)) for each in (weights, new_weights)
    )
    first = place(chunks, shares)
    second = place(chunks, new_shares, first)
    before, after = _flat(chunks, first), _flat(chunks, second)
    fewest = min(moved(before, way) for way in assignments(new_shares))
    assert moved(before, after) == fewest == least(before, new_shares)


def _flat(chunks: Sequence[Chunk], placement: Placement) -> list[str]:
    place_of = {
        (own.chunk, row): name for name, ranges in placement.items() for own in ranges for row in _rows(own)
    }
    return [place_of[chunk.sha256, row] for chunk in chunks for row in range(chunk.rows)]


def _rows(own: Range) -> range:
    return range(own.start, own.stop)


def training() -> Situation:
    return Situation().applied(state="training", unit="active")


def restarted(plan: Plan) -> list[str]:
    return [each.node.hostname for each in plan.hosts if each.does("restart") or each.does("start")]


def test_a_host_whose_own_words_change_is_restarted_alone() -> None:
    situation = training()
    situation.reserves["judge"] = NodeReserve(nice=12)
    assert restarted(situation.plan()) == ["judge"]
    situation = training().declare("judge", ram_gb=7)
    assert restarted(situation.plan()) == ["judge"]


def test_what_no_worker_knows_restarts_nobody() -> None:
    situation = training().declare("judge", storage_gb=300)
    assert restarted(situation.plan()) == []


def test_a_host_that_joins_restarts_those_that_learn_of_it_and_says_why() -> None:
    plan = training().add(host("lighthouse", 8)).plan()
    assert restarted(plan) == [*NAMES, "lighthouse"]
    reasons = {action.why for each in plan.hosts for action in each.actions if action.key == "restart"}
    assert reasons
    assert all(reasons)


def test_a_host_that_keeps_cores_for_itself_changes_everybody_s_share() -> None:
    situation = training()
    situation.reserves["judge"] = NodeReserve(cores=1)
    plan = situation.plan()
    assert restarted(plan) == list(NAMES)
    assert plan.moved == plan.least_moved


def test_a_host_that_is_lost_for_a_while_keeps_its_share() -> None:
    situation = training()
    before = situation.plan()
    answer = situation.answer("judge")
    while_lost = situation.unreachable("judge", "no answer").plan()
    assert while_lost.placements == before.placements
    assert restarted(while_lost) == []
    assert not any(each.chunks for each in while_lost.hosts)
    situation.observed["judge"] = answer
    regained = situation.plan()
    assert regained.placements == before.placements
    done = {action.key for each in regained.hosts for action in each.actions}
    assert done <= {"watch", "aggregate", "model", "validate", "judge"}


def test_a_host_that_is_taken_out_and_put_back_has_as_many_records_as_before() -> None:
    situation = fleet(EXAMPLE, **WEIGHTS)
    first = quotas(EXAMPLE, situation.plan())
    kept, answer = next(node for node in situation.nodes if node.hostname == "c"), situation.answer("c")
    situation.remove("c").applied(state="training", unit="active")
    before = owners(EXAMPLE, situation.plan())
    nodes = situation.nodes
    situation.nodes = (*nodes[:2], kept, *nodes[2:])
    situation.observed["c"] = answer
    plan = situation.plan()
    after = owners(EXAMPLE, plan)
    assert quotas(EXAMPLE, plan) == first
    # Its chunks are on its disk still, and what it had comes back to it as far as the others give it up.
    assert moved(before, after) == least(before, quotas(EXAMPLE, plan))
    assert plan.moved == plan.least_moved


def test_the_same_change_is_the_same_plan_whoever_makes_it() -> None:
    plans = [training().add(host("lighthouse", 8)).remove("judge").plan() for _ in range(2)]
    assert plans[0] == plans[1]
