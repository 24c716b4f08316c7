"""What a person says yes to: each thing that a plan does, what cannot be undone last."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tailtrain.planning.departed import DepartedFound
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.observed import StoredRun
from tailtrain.planning.receipt import Login
from tailtrain.planning.rendering.stakes import stakes
from tests.plans.situations import NAMES, SEVENTH, Situation

SIX = ", ".join(NAMES)
RUN = Situation().plan().run_id


def at_stake(situation: Situation) -> list[str]:
    return stakes(document_of(situation.plan(), diffs=False))


def test_a_first_install_names_hosts_packages_and_bytes() -> None:
    assert at_stake(Situation()) == [
        f"install the worker on {SIX}",
        f"install python3-venv with apt on {SIX}",
        f"send 102 chunks (6.0 MB) to {SIX}",
        f"have 96 chunks (5.3 MB) fetched by {SIX}",
        f"train run {RUN} to its end, 1,000,000 tokens, and judge the model",
    ]


def test_what_a_backend_gets_and_gives_is_told() -> None:
    told = at_stake(Situation().stored("s3", uploads={"a": 4_000_000, "b": 2_300_000}))
    assert told[2:4] == [
        "upload 2 packs, 6.3 MB, to fleet:training/chunks",
        f"have 198 chunks (11.3 MB) fetched by {SIX}",
    ]


def test_nothing_is_at_stake_where_nothing_is_done() -> None:
    assert at_stake(Situation().applied()) == []


def test_a_restart_says_which_run_it_interrupts_and_where() -> None:
    running = Situation().applied(state="training", round_number=12, unit="active")
    changed = running.declare("judge", cores=8)
    told = at_stake(changed)
    (line,) = [line for line in told if line.startswith("restart")]
    assert line.startswith("restart the worker on ")
    assert "judge" in line
    assert f"(interrupts run {RUN} in round 12: it loses what it trained" in line
    assert told.index(line) > next(i for i, line in enumerate(told) if line.startswith("send"))


def test_a_stopped_worker_is_started() -> None:
    situation = Situation().applied(state="training", unit="active").unit("judge", "inactive")
    assert "start the worker on judge" in at_stake(situation)


def test_old_runs_are_counted_once_with_what_they_free_on_all_hosts() -> None:
    situation = Situation().applied()
    for name in NAMES:
        runs = tuple(StoredRun(f"{n:016}", "finished", 100_000_000, float(n)) for n in range(1, 6))
        situation.on(name, runs=runs)
    (line,) = [line for line in at_stake(situation) if line.startswith("remove")]
    assert line == f"remove 3 old runs (1.8 GB) on {SIX}"


def test_a_host_that_left_is_named_last() -> None:
    situation = Situation().add(SEVENTH).applied(state="training", unit="active")
    situation.remove("lighthouse")
    situation.departed = (
        DepartedFound("lighthouse", Login(), working=True, run="1087d07c4a47f6d0", bytes=1_200_000_000),
    )
    assert at_stake(situation)[-1] == (
        "stop the worker and remove all that is ours (1.2 GB) on lighthouse, which left the fleet"
    )


def test_a_host_that_does_not_answer_is_named() -> None:
    told = at_stake(Situation().unreachable("judge", "no answer"))
    assert "go on without judge, which does not answer" in told


def test_judging_alone_is_said() -> None:
    situation = Situation().applied()
    situation.on("judge", run=replace(situation.answer("judge").run, validated_sha256=""))
    assert at_stake(situation) == [f"judge the model of run {RUN}"]


def test_many_hosts_are_counted_not_named() -> None:
    situation = Situation()
    for number in range(5):
        situation.add(msgspec.structs.replace(SEVENTH, hostname=f"more{number}"))
    assert at_stake(situation)[0] == "install the worker on 11 hosts"


@pytest.mark.parametrize("odd", ["run \x1b[2J", "a\nb"])
def test_what_comes_from_a_host_cannot_move_a_terminal(odd: str) -> None:
    situation = Situation().applied(state="training", unit="active").declare("judge", cores=9)
    situation.on("judge", run=replace(situation.answer("judge").run, run_id=odd))
    assert all(line.isprintable() for line in at_stake(situation))
