"""The six guarantees: each verdict that this version can give is reached by a record that makes it so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.planning.balance import idle_shares, imbalances
from tailtrain.planning.guarantees import (
    Guarantee,
    RunRecord,
    Verdict,
    busy_share,
    judge,
    losses,
)
from tailtrain.planning.settings import parse_settings
from tailtrain.spec.defaults import ALL_NODES
from tests.plans.situations import GIB, NAMES

if TYPE_CHECKING:
    from tailtrain.spec import TrainingConfiguration

CORES = {node.hostname: node.cores for node in ALL_NODES}
GOSSIP = "eneGossip"


def member(
    node: str, *, seconds: float = 10.0, busy: float = 0.95, speed: float | None = None
) -> dict[str, Any]:
    rate = 100.0 * CORES[node] if speed is None else speed
    return {
        "node": node,
        "tokens": round(rate * seconds),
        "records": 5,
        "loss": 2.0,
        "tokens_per_second": rate,
        "cpu_seconds": busy * seconds * CORES[node],
        "train_seconds": seconds,
    }


def a_round(number: int, *members: dict[str, Any], total: int | None = None) -> dict[str, Any]:
    group = list(members or map(member, NAMES))
    return {"round": number, "group": group, "total_tokens": 36_000 * number if total is None else total}


def without(*absent: str) -> list[dict[str, Any]]:
    return [member(name) for name in NAMES if name not in absent]


def contribution(node: str, *, tokens: int = 1000, there: bool = True) -> dict[str, Any]:
    return {"node": node, "tokens": tokens, "in_final_average": there}


def fetched(source: str = "remote", *, seconds: float = 0.2, error: str | None = None) -> dict[str, Any]:
    return {"chunk": 64 * "c", "source": source, "bytes": 9, "seconds": seconds, "error": error}


NOTHING_FOREIGN = {"chunk": None, "source": None, "bytes": 0, "seconds": 0.0, "error": None}
GOOD = RunRecord(
    rounds=[a_round(1), a_round(2), a_round(3)],
    contributions=[contribution(name) for name in NAMES],
    cores=CORES,
    memory_bytes={node.hostname: node.ram_gb * GIB for node in ALL_NODES},
    usable_cores={name: float(cores) for name, cores in CORES.items()},
    views=dict.fromkeys(NAMES, NAMES),
    availability=dict.fromkeys(NAMES, fetched()),
)


def training(**settings: Any) -> TrainingConfiguration:
    return parse_settings(
        {
            "datasets": {"natural": "x"},
            "coordination_protocol": "decentralized",
            "storage_backend": "local",
            **settings,
        }
    ).training


def verdict(name: str, record: RunRecord = GOOD, **settings: Any) -> Guarantee:
    found = judge(ALL_NODES, training(**settings), record)
    return next(guarantee for guarantee in found if guarantee.name == name)


def test_all_six_are_judged_in_the_specification_s_order() -> None:
    assert [(g.name, g.verdict.value) for g in judge(ALL_NODES, training(), GOOD)] == [
        ("networkUtilization", "met"),
        ("resourceUtilization", "met"),
        ("faultTolerance", "not exercised"),
        ("loadBalancing", "met"),
        ("dataAvailability", "met"),
        ("coordination", "not exercised"),
    ]


@pytest.mark.parametrize(
    "last",
    [[], [contribution("judge", tokens=0)], [contribution("judge", there=False)]],
    ids=["never trained", "no tokens", "not in the final average"],
)
def test_a_node_that_is_not_in_the_final_model_is_named(last: list[dict[str, Any]]) -> None:
    others = [contribution(name) for name in NAMES if name != "judge"]
    found = verdict("networkUtilization", replace(GOOD, contributions=[*others, *last]))
    assert found.verdict is Verdict.NOT_MET
    assert found.measured == "5 of 6 nodes trained and are in the final average; not judge"


def test_resources_are_met_when_all_are_given_and_busy() -> None:
    found = verdict("resourceUtilization")
    assert found.verdict is Verdict.MET
    assert found.measured.startswith("36 of 36 cores and 72 of 72 GB allocated; processors 95% busy")


@pytest.mark.parametrize(
    ("busy", "expected"), [(0.89, Verdict.NOT_MET), (0.91, Verdict.MET), (0.0, Verdict.NOT_MET)]
)
def test_idle_processors_are_not_utilized(busy: float, expected: Verdict) -> None:
    record = replace(GOOD, rounds=[a_round(1, *(member(name, busy=busy) for name in NAMES))])
    assert verdict("resourceUtilization", record).verdict is expected


def test_busy_is_weighed_by_the_cores_behind_it() -> None:
    record = replace(
        GOOD, rounds=[a_round(1, *(member(name, busy=1.0 if name == "qfox" else 0.0) for name in NAMES))]
    )
    assert busy_share(record) == pytest.approx(16 / 36)
    assert busy_share(replace(GOOD, rounds=[])) == 0.0


def test_cores_and_memory_that_were_not_given_are_not_utilized() -> None:
    fewer = verdict("resourceUtilization", replace(GOOD, cores={**CORES, "qfox": 15}))
    assert fewer.verdict is Verdict.NOT_MET
    assert fewer.measured.startswith("35 of 36 cores")
    less = verdict("resourceUtilization", replace(GOOD, memory_bytes={**GOOD.memory_bytes, "judge": 7 * GIB}))
    assert less.verdict is Verdict.NOT_MET
    assert "71 of 72 GB" in less.measured


def test_resources_of_a_node_that_did_not_train_do_not_count() -> None:
    record = replace(GOOD, contributions=[contribution(name) for name in NAMES if name != "judge"])
    found = verdict("resourceUtilization", record)
    assert found.verdict is Verdict.NOT_MET
    assert found.measured.startswith("32 of 36 cores and 64 of 72 GB")


def test_a_node_that_is_lost_and_comes_back_is_tolerated() -> None:
    rounds = [a_round(1), a_round(2, *without("judge")), a_round(3)]
    found = verdict("faultTolerance", replace(GOOD, rounds=rounds))
    assert found.verdict is Verdict.MET
    assert found.measured == (
        "1 lost (judge), 1 regained; 0 rounds and 0 committed tokens lost;"
        " training went on with 5 of 6 nodes (quorum 4)"
    )


def test_a_node_that_is_lost_for_good_is_tolerated_within_the_quorum_and_named() -> None:
    rounds = [a_round(1), a_round(2, *without("judge")), a_round(3, *without("judge"))]
    found = verdict("faultTolerance", replace(GOOD, rounds=rounds))
    assert found.verdict is Verdict.MET
    assert "1 lost (judge), 0 regained" in found.measured
    assert found.measured.endswith("; not back: judge")


@pytest.mark.parametrize(
    ("rounds", "settings", "words"),
    [
        ([a_round(1), a_round(2, *without("qfox", "judge", "architect"))], {}, "went on with 3 of 6"),
        ([a_round(1), a_round(2, *without("judge"), total=35_999)], {}, "1 committed tokens lost"),
        ([a_round(1), a_round(1, total=0)], {}, "1 rounds and 36,000 committed tokens lost"),
        ([a_round(1), a_round(2, *without("judge"))], {"fault_tolerance": False}, "(quorum 6)"),
    ],
    ids=["below the quorum", "work taken back", "all of it taken back", "should have stopped"],
)
def test_losses_that_were_not_tolerated(
    rounds: list[dict[str, Any]], settings: dict[str, Any], words: str
) -> None:
    found = verdict("faultTolerance", replace(GOOD, rounds=rounds), **settings)
    assert found.verdict is Verdict.NOT_MET
    assert words in found.measured


def test_a_run_without_a_model_tolerated_nothing() -> None:
    record = replace(GOOD, rounds=[a_round(1), a_round(2, *without("judge"))], contributions=[])
    assert verdict("faultTolerance", record).verdict is Verdict.NOT_MET


def test_rounds_that_the_primary_missed_are_counted() -> None:
    found = losses(replace(GOOD, rounds=[a_round(1), a_round(2), a_round(5)]))
    assert (found.rounds, found.tokens, found.lost) == (2, 0, ())
    assert verdict("faultTolerance", replace(GOOD, rounds=[a_round(1), a_round(5)])).verdict is Verdict.MET


def test_a_node_can_be_lost_more_than_once() -> None:
    gone = without("judge", "architect")
    found = losses(
        replace(GOOD, rounds=[a_round(1), a_round(2, *gone), a_round(3), a_round(4, *without("judge"))])
    )
    assert found.lost == ("architect", "judge", "judge")
    assert found.regained == ("architect", "judge")
    assert (found.away, found.fewest) == (("judge",), 4)


@pytest.mark.parametrize("protocol", ["centralized", "decentralized", GOSSIP])
@pytest.mark.parametrize(
    ("method", "share"), [("static", "speed share"), ("health_weighted", "speed x health share")]
)
def test_balance_is_judged_under_every_protocol(protocol: str, method: str, share: str) -> None:
    found = verdict("loadBalancing", coordination_protocol=protocol, load_balancing=method)
    assert found.verdict is Verdict.MET
    assert "largest idle share 0.0%" in found.measured
    assert f"work share and {share} at most 0.0% apart" in found.measured
    assert ("lowest health 1.00" in found.measured) == (method == "health_weighted")


def test_a_node_whose_health_is_low_is_to_work_that_much_less() -> None:
    def told(health: float, seconds: float) -> RunRecord:
        group = [{**member(name), "health": 1.0} for name in NAMES if name != "qfox"]
        group.append({**member("qfox", seconds=seconds), "health": health})
        return replace(GOOD, rounds=[a_round(1, *group), a_round(2, *group)])

    found = verdict("loadBalancing", told(0.6, 6.0))
    assert found.verdict is Verdict.MET
    assert "lowest health 0.60" in found.measured
    assert verdict("loadBalancing", told(0.6, 10.0)).verdict is Verdict.NOT_MET
    assert verdict("loadBalancing", told(1.0, 6.0)).verdict is Verdict.NOT_MET


def test_a_node_that_waits_for_others_is_not_balanced() -> None:
    slow = [member(name, seconds=9.0 if name == "judge" else 10.0) for name in NAMES]
    record = replace(GOOD, rounds=[a_round(1), a_round(2, *slow), a_round(3, *slow)])
    found = verdict("loadBalancing", record, coordination_protocol=GOSSIP)
    assert found.verdict is Verdict.NOT_MET
    assert "largest idle share 10.0% (judge, target 5%)" in found.measured


def test_the_round_in_which_a_node_joins_is_not_held_against_it() -> None:
    late = [member(name, seconds=1.0 if name == "judge" else 10.0) for name in NAMES]
    record = replace(GOOD, rounds=[a_round(1, *without("judge")), a_round(2, *late), a_round(3)])
    assert idle_shares(record)["judge"] == 0.0


def test_work_that_does_not_follow_speed_is_not_balanced() -> None:
    odd = [{**member(name), "tokens": 1000} for name in NAMES]
    record = replace(GOOD, rounds=[a_round(1, *odd), a_round(2, *odd)])
    assert imbalances(record)["qfox"] == pytest.approx(16 / 36 - 1 / 6)
    found = verdict("loadBalancing", record, coordination_protocol=GOSSIP)
    assert found.verdict is Verdict.NOT_MET
    assert "27.8% apart" in found.measured


def test_one_round_compares_nothing() -> None:
    found = verdict("loadBalancing", replace(GOOD, rounds=[a_round(1)]), coordination_protocol=GOSSIP)
    assert found.verdict is Verdict.NOT_EXERCISED


def test_views_that_differ_are_no_coordination() -> None:
    other = {**GOOD.views, "judge": [name for name in NAMES if name != "qfox"]}
    found = verdict("coordination", replace(GOOD, views=other), coordination_protocol=GOSSIP)
    assert found.verdict is Verdict.NOT_MET
    assert found.measured == "2 different views of the members at the end"


def test_equal_views_are_coordination_in_whatever_order() -> None:
    turned = {name: list(reversed(NAMES)) if name == "judge" else list(NAMES) for name in NAMES}
    found = verdict("coordination", replace(GOOD, views=turned), coordination_protocol=GOSSIP)
    assert found.verdict is Verdict.MET
    assert found.measured == "all 6 nodes saw the same 6 members at the end"


def seen(*live: str, **other: Any) -> dict[str, Any]:
    return {"live": list(live or NAMES), "equal": not other, "differing": {}, "silent": [], **other}


def test_with_gossip_every_node_has_to_have_the_same_view_and_answers_of_all() -> None:
    equal = dict.fromkeys(NAMES, seen())
    dead = [
        {"node": "judge", "at_unix": 1.0, "seconds": 7.2},
        {"node": "architect", "at_unix": 2.0, "seconds": None},
    ]
    found = verdict("coordination", replace(GOOD, members=equal, deaths=dead), coordination_protocol=GOSSIP)
    assert found.verdict is Verdict.MET
    assert found.measured == (
        "all 6 nodes asked all others, and saw the same 6 members"
        "; 2 found dead (judge, architect), at most 7.2 s after the last sign of life"
    )
    for odd in (
        seen(differing={"judge": "not architect"}),
        seen(silent=["judge"]),
        {**seen(*NAMES[:-1]), "equal": True},
    ):
        record = replace(GOOD, members={**equal, "qfox": odd})
        found = verdict("coordination", record, coordination_protocol=GOSSIP)
        assert found.verdict is Verdict.NOT_MET
    silent = verdict(
        "coordination",
        replace(
            GOOD, members={**equal, "qfox": seen(silent=["judge"], differing={"architect": "not judge"})}
        ),
        coordination_protocol=GOSSIP,
    )
    assert silent.measured.endswith("; by qfox, architect sees not judge, judge did not answer")


def test_rounds_in_which_pairs_averaged_are_not_lost() -> None:
    rounds = [a_round(0), {**a_round(3), "since": 0}, {**a_round(6), "since": 3}]
    assert losses(replace(GOOD, rounds=rounds)).rounds == 0
    assert losses(replace(GOOD, rounds=[rounds[0], rounds[2]])).rounds == 3
    helped = [{**a_round(1, {**member("qfox"), "for": {"judge": 7}}), "all": False}]
    assert losses(replace(GOOD, rounds=rounds, pairs=helped)).taken_over == 7


def test_no_view_at_all_is_no_coordination() -> None:
    assert verdict("coordination", replace(GOOD, views={})).verdict is Verdict.NOT_MET


def test_data_are_available_where_every_node_got_a_chunk_from_the_backend() -> None:
    record = replace(GOOD, availability={**GOOD.availability, "judge": fetched(seconds=2.34)})
    found = verdict("dataAvailability", record, storage_backend="googleDriveTopological")
    assert found.verdict is Verdict.MET
    assert found.measured == (
        "6 of 6 nodes fetched and verified a random chunk that they do not own,"
        " from googleDriveTopological; the slowest took 2.3 s"
    )


def test_without_a_backend_the_nodes_that_gave_a_chunk_are_named() -> None:
    record = replace(
        GOOD, availability={name: fetched("qfox") for name in NAMES} | {"qfox": fetched("judge")}
    )
    found = verdict("dataAvailability", record)
    assert found.verdict is Verdict.MET
    assert ", from judge, qfox; " in found.measured


def test_a_node_that_got_no_chunk_is_named_with_the_reason() -> None:
    refused = fetched(error="fleet:bucket: access denied")
    found = verdict("dataAvailability", replace(GOOD, availability={**GOOD.availability, "judge": refused}))
    assert found.verdict is Verdict.NOT_MET
    assert found.measured.startswith("5 of 6 nodes fetched")
    assert found.measured.endswith("; not judge: fleet:bucket: access denied")


def test_a_backend_that_serves_nobody_is_not_available() -> None:
    record = replace(GOOD, availability=dict.fromkeys(NAMES, fetched(error="no such bucket")))
    found = verdict("dataAvailability", record, storage_backend="s3")
    assert found.verdict is Verdict.NOT_MET
    assert found.measured == (
        "0 of 6 nodes fetched and verified a random chunk that they do not own; not "
        f"{', '.join(sorted(NAMES))}: no such bucket"
    )


@pytest.mark.parametrize("left", [{}, {"judge": None}], ids=["did not answer", "validated and did not try"])
def test_a_node_that_did_not_try_proves_nothing_and_is_named(left: dict[str, None]) -> None:
    others = {name: fetched() for name in NAMES if name != "judge"}
    found = verdict("dataAvailability", replace(GOOD, availability={**others, **left}))
    assert found.verdict is Verdict.NOT_MET
    assert found.measured.startswith("5 of 6 nodes fetched")
    assert found.measured.endswith("; not tried on judge")


def test_where_nobody_tried_it_is_not_exercised() -> None:
    found = verdict("dataAvailability", replace(GOOD, availability={}))
    assert (found.verdict, found.measured) == (
        Verdict.NOT_EXERCISED,
        "no node tried to fetch another's chunk",
    )


def test_where_every_node_owns_all_chunks_there_is_nothing_to_fetch() -> None:
    found = verdict("dataAvailability", replace(GOOD, availability=dict.fromkeys(NAMES, NOTHING_FOREIGN)))
    assert found.verdict is Verdict.NOT_EXERCISED
    assert found.measured == "every node owns rows of every chunk"
    one = replace(GOOD, availability={**GOOD.availability, "qfox": NOTHING_FOREIGN})
    assert verdict("dataAvailability", one).verdict is Verdict.MET
    assert verdict("dataAvailability", one).measured.startswith("5 of 5 nodes fetched")


group = st.lists(
    st.builds(
        member,
        st.sampled_from(NAMES),
        seconds=st.floats(0, 1e6),
        busy=st.floats(0, 2),
        speed=st.floats(0, 1e9),
    ),
    max_size=6,
    unique_by=lambda entry: entry["node"],
)


@given(
    st.lists(group, max_size=5),
    st.lists(st.sampled_from(NAMES), max_size=6),
    st.sampled_from((GOSSIP, "decentralized")),
    st.dictionaries(
        st.sampled_from(NAMES),
        st.sampled_from([None, NOTHING_FOREIGN, fetched(), fetched("qfox"), fetched(error="no")]),
    ),
)
def test_any_record_gets_six_verdicts(
    groups: list[list[Any]], there: list[str], protocol: str, availability: dict[str, Any]
) -> None:
    record = replace(
        GOOD,
        rounds=[{"round": n, "group": members, "total_tokens": n} for n, members in enumerate(groups)],
        contributions=[contribution(name) for name in there],
        availability=availability,
    )
    found = judge(ALL_NODES, training(coordination_protocol=protocol), record)
    assert len(found) == 6
    assert all(guarantee.measured for guarantee in found)
    assert all(-1e-9 <= share <= 1 for share in idle_shares(record).values())
