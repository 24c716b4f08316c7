"""Where chunks come from: each backend's rule, in two waves, by the paths that there are."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.planning.datasets import PlannedChunk
from tailtrain.planning.sourcing import CONTROL, REMOTE, Delivery, Whereabouts, deliveries, paths_to_ask
from tailtrain.spec import StorageBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCAL, S3, DRIVE = StorageBackend.LOCAL, StorageBackend.S3, StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL
NODES = ("alpha", "beta", "gamma", "delta")


def chunk(number: int) -> PlannedChunk:
    return PlannedChunk(hashlib.sha256(str(number).encode()).hexdigest(), 100 + number, 10)


ONE = chunk(0)


def one(
    backend: StorageBackend,
    lacking: str,
    *,
    holders: str = "",
    owners: str = "",
    paths: dict[str, dict[str, str]] | None = None,
) -> dict[str, Delivery]:
    """How one chunk comes to each host that lacks it."""
    where = Whereabouts(
        {host: [ONE] for host in lacking.split()},
        {ONE.sha256: holders.split()},
        {ONE.sha256: owners.split()},
        paths,
    )
    return {host: each[0] for host, each in deliveries(backend, where).items()}


def shown(found: Mapping[str, Delivery]) -> dict[str, tuple[int, str]]:
    return {host: (each.wave, " ".join(each.sources)) for host, each in found.items()}


RELAYED = {"alpha": {"beta": "relayed", "gamma": "direct"}, "gamma": {"beta": "direct", "alpha": "direct"}}


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        (LOCAL, {"alpha": (1, "control")}),
        (S3, {"alpha": (1, "remote beta")}),
        (DRIVE, {"alpha": (1, "beta remote")}),
    ],
)
def test_an_owner_that_lacks_what_a_neighbour_has(
    backend: StorageBackend, found: dict[str, tuple[int, str]]
) -> None:
    assert shown(one(backend, "alpha", holders="beta", owners="alpha")) == found


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        (LOCAL, {"alpha": (1, "beta control")}),
        (S3, {"alpha": (1, "remote beta")}),
        (DRIVE, {"alpha": (1, "beta remote")}),
    ],
)
def test_a_copy_that_a_neighbour_has(backend: StorageBackend, found: dict[str, tuple[int, str]]) -> None:
    assert shown(one(backend, "alpha", holders="beta", owners="beta")) == found


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        (LOCAL, {"alpha": (2, "gamma control"), "gamma": (1, "control"), "beta": (2, "gamma control")}),
        (S3, {"alpha": (1, "remote"), "gamma": (1, "remote"), "beta": (1, "remote")}),
        (DRIVE, {"alpha": (2, "gamma remote"), "gamma": (1, "remote"), "beta": (2, "gamma remote")}),
    ],
)
def test_what_nobody_has_comes_once_to_its_owner_and_from_there_to_the_others(
    backend: StorageBackend, found: dict[str, tuple[int, str]]
) -> None:
    assert shown(one(backend, "alpha gamma beta", owners="gamma")) == found


@pytest.mark.parametrize(
    ("backend", "first"), [(LOCAL, "control beta"), (S3, "remote beta"), (DRIVE, "remote beta")]
)
def test_a_relayed_neighbour_comes_last(backend: StorageBackend, first: str) -> None:
    assert shown(one(backend, "alpha", holders="beta", owners="beta", paths=RELAYED)) == {"alpha": (1, first)}


def test_the_backend_is_preferred_to_a_relayed_path_and_the_plan_says_so() -> None:
    found = one(DRIVE, "alpha", holders="beta", owners="beta", paths=RELAYED)["alpha"]
    assert found.why == "rather than by a relayed path"
    assert one(DRIVE, "alpha", paths=RELAYED)["alpha"].why == "no node on a direct path has it"


@pytest.mark.parametrize("backend", [LOCAL, DRIVE])
def test_a_neighbour_that_nobody_knows_the_path_to_is_no_source(backend: StorageBackend) -> None:
    found = one(backend, "alpha", holders="beta", owners="beta", paths={"alpha": {}})["alpha"]
    assert "beta" not in found.sources


@pytest.mark.parametrize("backend", [LOCAL, DRIVE])
def test_who_gets_it_first_is_no_source_by_a_relayed_path(backend: StorageBackend) -> None:
    paths = {"alpha": {"beta": "relayed"}, "beta": {"alpha": "relayed"}}
    found = one(backend, "alpha beta", owners="beta", paths=paths)
    base = "control" if backend is LOCAL else "remote"
    assert shown(found) == {"alpha": (1, base), "beta": (1, base)}


def test_cutting_off_a_neighbour_changes_the_source() -> None:
    everywhere = {"alpha": {"beta": "direct", "gamma": "direct"}}
    first = one(DRIVE, "alpha", holders="beta gamma", owners="delta", paths=everywhere)["alpha"]
    assert first.sources == ("beta", "gamma", REMOTE)
    cut = {"alpha": {"gamma": "direct"}}
    assert one(DRIVE, "alpha", holders="beta gamma", paths=cut)["alpha"].sources == ("gamma", REMOTE)
    assert one(DRIVE, "alpha", holders="beta gamma", paths={"alpha": {}})["alpha"].sources == (REMOTE,)


@pytest.mark.parametrize("backend", [LOCAL, DRIVE])
def test_work_is_spread_over_the_neighbours_who_can_do_it(backend: StorageBackend) -> None:
    chunks = [chunk(number) for number in range(60)]
    holding = {each.sha256: ["beta", "gamma", "delta"] for each in chunks}
    where = Whereabouts({"alpha": chunks}, holding, {}, None)
    firsts = Counter(each.sources[0] for each in deliveries(backend, where)["alpha"])
    assert firsts == {"beta": 20, "gamma": 20, "delta": 20}


def test_who_gets_what_nobody_owns_first_is_spread_too() -> None:
    chunks = [chunk(number) for number in range(40)]
    where = Whereabouts(dict.fromkeys(NODES, chunks), {}, {}, None)
    found = deliveries(LOCAL, where)
    assert Counter(name for name in NODES for each in found[name] if each.sent) == dict.fromkeys(NODES, 10)


@st.composite
def situations(draw: st.DrawFn) -> Whereabouts:
    """Chunks that some have and others lack, in a fleet with all kinds of paths."""
    lacking: dict[str, list[PlannedChunk]] = {name: [] for name in draw(st.permutations(NODES))}
    holders: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}
    for number in range(draw(st.integers(0, 6))):
        each = chunk(number)
        states = {name: draw(st.sampled_from(["has", "lacks", "neither"])) for name in NODES}
        holders[each.sha256] = [name for name in NODES if states[name] == "has"]
        for name in NODES:
            if states[name] == "lacks":
                lacking[name].append(each)
        owners[each.sha256] = draw(st.lists(st.sampled_from(NODES), unique=True, max_size=3))
    kinds = st.sampled_from(["direct", "relayed", ""])
    paths = {a: {b: draw(kinds) for b in NODES if a != b} for a in NODES}
    return Whereabouts(lacking, holders, owners, draw(st.sampled_from([None, paths])))


@given(situations(), st.sampled_from(StorageBackend))
def test_whatever_is_lacking_comes_from_somewhere_that_has_it_by_then(
    where: Whereabouts, backend: StorageBackend
) -> None:
    found = deliveries(backend, where)
    base = CONTROL if backend is LOCAL else REMOTE
    after_wave_1 = {
        (host, each.chunk.sha256) for host, many in found.items() for each in many if each.wave == 1
    }
    assert {host: [each.chunk for each in many] for host, many in found.items()} == {
        host: list(chunks) for host, chunks in where.lacking.items()
    }
    for host, many in found.items():
        for each in many:
            first, sha256 = each.sources[0], each.chunk.sha256
            assert host not in each.sources
            assert len(set(each.sources)) == len(each.sources)
            assert base in each.sources
            assert {CONTROL, REMOTE} - {base} <= {CONTROL, REMOTE} - set(each.sources)
            assert each.why
            if each.wave == 1:
                assert first == base or first in where.holders[sha256]
            else:
                assert (first, sha256) in after_wave_1
            nodes = [source for source in each.sources if source != base]
            assert all(where.path(host, source) for source in nodes)
            if first != base:
                assert where.path(host, first) == "direct"
            # What is tried next is there in any case: who holds it, or who gets it first.
            assert all(
                source in where.holders[sha256] or (source, sha256) in after_wave_1 for source in nodes
            )


@given(situations())
def test_the_drive_gives_each_chunk_once_where_all_paths_are_direct(where: Whereabouts) -> None:
    direct = Whereabouts(where.lacking, where.holders, where.owners, None)
    given_by = Counter(
        each.chunk.sha256
        for many in deliveries(DRIVE, direct).values()
        for each in many
        if each.sources[0] == REMOTE
    )
    needed = {each.sha256 for chunks in where.lacking.values() for each in chunks}
    assert given_by == {sha256: 1 for sha256 in needed if not where.holders[sha256]}


def test_paths_are_asked_to_those_who_matter_most() -> None:
    many = [chunk(number) for number in range(3)]
    planned = {
        "alpha": [
            Delivery(many[0], ("beta", REMOTE, "gamma"), 1, ""),
            Delivery(many[1], ("beta", REMOTE), 1, ""),
            Delivery(many[2], ("delta", CONTROL), 2, ""),
        ],
        "beta": [Delivery(many[0], (REMOTE,), 1, "")],
    }
    assert paths_to_ask(planned, 16) == {"alpha": ("beta", "delta", "gamma")}
    assert paths_to_ask(planned, 1) == {"alpha": ("beta",)}
