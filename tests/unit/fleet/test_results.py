"""The results of a deploy: every host has one, with the reason and the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.fleet.results import HostResult, next_step, render_results, results_of, shortened
from tailtrain.planning.departed import DepartedFound
from tailtrain.planning.receipt import Login
from tests.plans.situations import NAMES, PRIMARY, SEVENTH, Situation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tailtrain.planning.plan import Plan

FIRST = Situation().unreachable("judge", "no answer within 10 s\nand more").plan()


def found(
    plan: Plan,
    failures: Mapping[str, str] | None = None,
    stopped: Mapping[str, str] | None = None,
    left_out: Collection[str] = (),
    cleaned: Collection[str] = (),
) -> dict[str, tuple[str, str]]:
    results = results_of(
        plan,
        failures=failures or {},
        stopped=stopped or {},
        left_out=set(left_out),
        cleaned=set(cleaned),
    )
    return {result.name: (result.result, result.detail) for result in results}


def test_done_says_what_was_done_and_who_did_not_answer_is_unknown() -> None:
    assert found(FIRST) == {
        **dict.fromkeys(NAMES, ("done", "first install")),
        "judge": ("unknown", "no answer within 10 s"),
    }


def test_what_failed_and_where_the_others_stopped() -> None:
    told = found(
        FIRST,
        {"architect": "'chunks': disk full"},
        dict.fromkeys((PRIMARY, "architect"), "stopped in 'start'"),
    )
    assert told["architect"] == ("failed", "'chunks': disk full")
    assert told[PRIMARY] == ("not run", "stopped in 'start'")
    assert told["netcup-router"] == ("done", "first install")


def test_a_host_without_actions_has_no_change_wherever_the_others_stopped() -> None:
    plan = Situation().applied().on("judge", manifests=frozenset()).plan()
    told = found(plan, stopped=dict.fromkeys(NAMES, "stopped before 'chunks'"))
    assert told["judge"] == ("not run", "stopped before 'chunks'")
    assert told[PRIMARY] == ("no change", "")


def test_who_was_left_out_by_the_person_was_not_run() -> None:
    assert found(FIRST, left_out=["judge"])["judge"] == ("not run", "left out by --limit or --exclude")


def test_hosts_that_left_the_fleet_have_a_result_too() -> None:
    situation = Situation().add(SEVENTH).applied()
    situation.remove(SEVENTH.hostname)
    situation.departed = (
        DepartedFound(SEVENTH.hostname, Login(), bytes=1),
        DepartedFound("gone", Login(), unreachable="no such host"),
    )
    told = found(situation.plan())
    assert told[SEVENTH.hostname] == ("not run", "it left the fleet, and is not cleaned yet")
    assert told["gone"] == ("unknown", "no such host")
    assert found(situation.plan(), cleaned=[SEVENTH.hostname])[SEVENTH.hostname] == (
        *("done", "cleaned: it left the fleet"),
    )


@given(
    failed=st.sets(st.sampled_from(NAMES)),
    stopped=st.sets(st.sampled_from(NAMES)),
    away=st.sets(st.sampled_from(NAMES)),
    left_out=st.sets(st.sampled_from(NAMES)),
)
def test_no_host_is_ever_missing(
    failed: set[str], stopped: set[str], away: set[str], left_out: set[str]
) -> None:
    situation = Situation()
    for name in away:
        situation.unreachable(name, "away")
    told = found(situation.plan(), dict.fromkeys(failed, "why"), dict.fromkeys(stopped, "op"), left_out)
    assert list(told) == list(NAMES)
    assert {result for result, _ in told.values()} <= {"done", "failed", "not run", "unknown", "no change"}


def test_the_table_fits_80_columns_and_ends_with_what_to_type() -> None:
    results = [
        HostResult("alpha", "done", "first install"),
        HostResult("a-much-longer-name", "failed", "'Data distribution: chunks': " + "no space left " * 9),
    ]
    text = render_results(results, next_step(results, judged=False))
    assert text.startswith(
        "Results\n  alpha               done    first install\n  a-much-longer-name  failed  'Data"
    )
    assert text.endswith(
        "\nNext: tailtrain logs a-much-longer-name; once the cause is gone: tailtrain apply\n"
    )
    assert max(map(len, text.splitlines()[:-1])) <= 80


def test_what_a_host_says_cannot_move_a_terminal() -> None:
    text = render_results([HostResult("alpha", "failed", "\x1b[2Jboo\r")], "")
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("results", "judged", "words"),
    [
        (["done", "no change"], True, "tailtrain report, tailtrain fetch FOLDER"),
        (["done"], False, "tailtrain status"),
        (["done", "unknown"], False, "tailtrain apply, which goes on from here"),
        (["not run", "failed"], False, "tailtrain logs 1; once the cause is gone: tailtrain apply"),
    ],
)
def test_what_to_type_next(results: list[str], judged: bool, words: str) -> None:  # noqa: FBT001 - a parameter
    rows = [HostResult(str(number), result, "") for number, result in enumerate(results)]
    assert next_step(rows, judged=judged) == words


def test_a_long_error_keeps_its_first_and_its_last_line() -> None:
    assert shortened(["it ended; its log ends:", "", "one", "two ", ""]) == "it ended; its log ends: ... two"
    assert shortened(["alone"]) == "alone"
    assert shortened([]) == ""
