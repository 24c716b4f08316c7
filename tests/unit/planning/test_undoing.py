"""The plan of an undo: what it says of each host, what is at stake, and what came of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.planning import layout
from tailtrain.planning.departed import departed_names
from tailtrain.planning.observed import UnitState, Unreachable
from tailtrain.planning.receipt import Login, Receipt, receipts_of
from tailtrain.planning.rendering.undo import Outcome, Result, question, render_outcomes, render_undo
from tailtrain.planning.undoing import (
    Belongings,
    KeptRun,
    UndoHost,
    UndoPlan,
    Verdict,
)

RUN, OLD = "2aeb0717b500fc76", "77aa0717b500fc76"
SHA256 = "f" * 64
FOLDERS = {
    layout.CONFIG_DIR: 3_000,
    layout.ENVIRONMENT_DIR: 1_372_300_000,
    layout.CODE_DIR: 150_000,
    layout.STATE_DIR: 23_000_000,
    layout.CHUNK_DIR: 2_500_000,
    layout.MANIFEST_DIR: 100_000,
    layout.RUN_DIR: 20_000_000,
}
UNITS = {layout.WORKER_UNIT: UnitState("active", enabled=True), layout.VALIDATE_UNIT: UnitState()}
UNDER_WAY = KeptRun(RUN, "training", 5, 12_000_000)
FINISHED = KeptRun(OLD, "finished", 9, 8_000_000, 3_300_000, SHA256)


def host(name: str, role: str = "compute", *, keep_runs: bool = False, **change: object) -> UndoHost:
    """A host that trains, and has a finished run from before."""
    found = Belongings(
        node=name,
        units=UNITS,
        unit_bytes=1_900,
        places=FOLDERS,
        account=True,
        run=RUN,
        runs=(UNDER_WAY, FINISHED),
        left=layout.PACKAGES,
    )
    return UndoHost(name, role, replace(found, **change), keep_runs)  # type: ignore[arg-type]


def away(name: str, role: str = "compute") -> UndoHost:
    return UndoHost(name, role, Unreachable(name, "does not answer: the tailnet says it is offline"))


def bare(name: str) -> UndoHost:
    return UndoHost(name, "compute", Belongings(name, left=layout.PACKAGES))


FLEET = UndoPlan(
    (
        host("qfox", "primary"),
        host("architect"),
        host("judge", unexpected=(f"{layout.STATE_DIR} is a mount point",)),
        bare("netcup-router"),
        away("racknerd-510bd9c"),
        away("lighthouse", "departed"),
    )
)

GOLDEN = """\
Host              role      worker   programs  data  runs  rest  sum in MB
qfox              primary   active    1,372.5   2.6  20.0   0.4    1,395.5
architect         compute   active    1,372.5   2.6  20.0   0.4    1,395.5
judge             compute   active    1,372.5   2.6  20.0   0.4    1,395.5
netcup-router     compute   nothing
racknerd-510bd9c  compute   unknown
lighthouse        departed  unknown

on qfox, architect
  stop, disable and remove tailtrain-worker.service, tailtrain-validate.service
  remove /etc/tailtrain
  remove /opt/tailtrain/env
  remove /opt/tailtrain/code
  remove /var/lib/tailtrain
  remove the account tailtrain

judge: refused, nothing is touched there
  /var/lib/tailtrain is a mount point
racknerd-510bd9c: cannot be reached, what is there is unknown and stays
  does not answer: the tailnet says it is offline
lighthouse: cannot be reached, what is there is unknown and stays
  does not answer: the tailnet says it is offline
  once the others are undone nobody knows of it: to undo it later, put it
  back into the inventory and name it

What stays
  packages python3, python3-venv, ca-certificates: others may use them by now
    (on qfox, architect)
  what the workers have written to the system's log
  in the inventory, so the next deploy is a first install there: qfox, architect

At stake
  run 2aeb0717b500fc76, under way at round 5 on qfox, architect: it ends there
    and cannot be resumed
  the model of run 77aa0717b500fc76, 3.3 MB on qfox, architect, has not been
    fetched from here
    to keep it there: --keep-runs

Undo: 2 of 6 hosts, 2.8 GB to remove. Refused: judge. Unknown: racknerd-510bd9c, lighthouse.
"""


def test_the_plan_says_what_goes_what_stays_and_what_is_at_stake() -> None:
    assert render_undo(FLEET) == GOLDEN
    assert [one.verdict for one in FLEET.hosts] == [
        *(Verdict.UNDO, Verdict.UNDO, Verdict.REFUSED),
        *(Verdict.NOTHING, Verdict.UNKNOWN, Verdict.UNKNOWN),
    ]


def test_the_question_names_what_is_at_stake() -> None:
    assert question(FLEET) == (
        "This removes what tailtrain has on qfox, architect.\n"
        f"Run {RUN} ends.\n"
        f"The model of run {OLD} is lost.\n"
        "Type the number of hosts to do it"
    )


def test_nothing_to_undo_is_one_line_below_the_hosts() -> None:
    plan = UndoPlan((bare("qfox"), bare("judge")))
    assert render_undo(plan).splitlines()[-1] == "Nothing to undo on 2 hosts."
    assert plan.undone == ()


def test_runs_that_are_kept_are_no_loss() -> None:
    plan = UndoPlan((host("qfox", "primary", keep_runs=True), bare("judge")), keep_runs=True)
    text = render_undo(plan)
    assert "remove all in /var/lib/tailtrain but the runs" in text
    assert "remove the account" not in text
    assert "qfox: 2 runs, 20.0 MB, and the account that owns them" in text
    assert "it stops; the next deploy resumes it" in " ".join(text.split())
    assert plan.lost_models == ()
    assert plan.hosts[0].frees == plan.hosts[0].belongings.bytes - 20_000_000


def test_what_is_left_of_runs_that_were_kept_is_nothing_more_to_do() -> None:
    places = {layout.STATE_DIR: 20_000_000, layout.RUN_DIR: 20_000_000}
    kept = host("qfox", "primary", units={}, places=places)
    assert replace(kept, keep_runs=True).verdict is Verdict.NOTHING
    assert kept.steps == ("remove /var/lib/tailtrain", "remove the account tailtrain")


def test_a_run_goes_on_without_hosts_that_are_not_its_primary() -> None:
    [run] = UndoPlan((host("judge"), host("architect"))).ending
    assert (run.run_id, run.round, run.hosts, run.ends) == (RUN, 5, ("judge", "architect"), False)
    assert "it goes on without, if enough nodes are left" in " ".join(
        render_undo(UndoPlan((host("judge"),))).split()
    )


def test_a_run_that_was_stopped_is_unfinished_and_one_that_ended_is_no_stake() -> None:
    stopped = {layout.WORKER_UNIT: UnitState("inactive")}
    [run] = UndoPlan((host("qfox", "primary", units=stopped),)).ending
    assert not run.under_way
    assert UndoPlan((host("qfox", "primary", run=OLD),)).ending == ()


def test_a_model_is_lost_only_where_nobody_keeps_it() -> None:
    primary = host("qfox", "primary", run=OLD)
    [model] = UndoPlan((primary, host("judge"))).lost_models
    assert (model.run_id, model.hosts, model.fetchable) == (OLD, ("qfox", "judge"), True)
    assert "to have it: tailtrain fetch FOLDER" in render_undo(UndoPlan((primary,)))
    assert UndoPlan((primary,), fetched=frozenset({SHA256})).lost_models == ()
    assert UndoPlan((host("judge"),)).lost_models == (), "the primary has it"
    [model] = UndoPlan((host("lighthouse", "departed"),)).lost_models
    assert not model.fetchable


def test_a_login_without_root_rights_is_refused_with_what_it_needs() -> None:
    plan = UndoPlan((host("judge", superuser=False),))
    assert plan.of(Verdict.REFUSED) == plan.hosts
    assert "needs _sudo" in render_undo(plan)


def test_every_host_has_a_result_and_what_is_done_is_proven() -> None:
    outcomes = [
        Outcome("qfox", Result.DONE, "1,395.5 MB removed"),
        Outcome("judge", Result.FAILED, "/etc/tailtrain cannot be removed: Operation not permitted"),
        Outcome("lighthouse", Result.UNKNOWN, "could not be reached"),
    ]
    assert render_outcomes(FLEET, outcomes) == (
        "Host        result\n"
        "qfox        done     1,395.5 MB removed\n"
        "judge       failed   /etc/tailtrain cannot be removed: Operation not permitted\n"
        "lighthouse  unknown  could not be reached\n"
        "\n"
        "Looked again: nothing of tailtrain's is left on qfox.\n"
    )


def receipt(at: str, **fleet: Login) -> Receipt:
    return Receipt(
        plan="p", run=RUN, by="me", at=at, files={}, code="c", environment="e", peer_id="i",
        cores=1, memory_bytes=1, gpus=0, fleet=fleet,
    )  # fmt: skip


def test_hosts_that_left_are_known_from_receipts_and_the_newest_knows_best() -> None:
    found: list[Belongings | Unreachable] = [
        Belongings(
            "qfox", receipt=receipt("2026-12-02T00:00:00+00:00", qfox=Login(), gone=Login("me", sudo=True))
        ),
        Belongings("judge", receipt=receipt("2026-12-01T00:00:00+00:00", gone=Login("old"), older=Login())),
        Belongings("architect"),
        Unreachable("netcup-router", "away"),
    ]
    known = departed_names({"qfox", "judge", "architect"}, receipts_of(found))
    assert known == {"gone": Login("me", sudo=True), "older": Login()}


some_hosts = st.lists(
    st.one_of(
        st.builds(host, st.just("a"), st.sampled_from(["primary", "compute", "departed"])),
        st.builds(away, st.just("b"), st.sampled_from(["compute", "departed"])),
        st.builds(bare, st.just("c")),
        st.builds(lambda reason: UndoHost("d", "compute", Unreachable("d", reason)), st.text()),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(some_hosts)
def test_no_host_is_missing_and_no_line_can_play_tricks_with_a_terminal(hosts: list[UndoHost]) -> None:
    plan = UndoPlan(tuple(replace(one, name=f"{one.name}-{number}") for number, one in enumerate(hosts)))
    text = render_undo(plan)
    assert text == render_undo(plan)
    assert all(line.isprintable() for line in text.split("\n"))
    for one in plan.hosts:
        assert one.name in text


def test_what_was_masked_for_ours_is_given_back_and_membership_alone_is_no_work() -> None:
    units = {layout.SERF_UNIT: UnitState("active", enabled=True)}
    found = host("judge", units=units, masked=("serf.service",))
    assert found.steps[:2] == (
        "stop, disable and remove tailtrain-serf.service",
        "unmask serf.service, which does not start by itself then",
    )
    assert not found.belongings.busy
