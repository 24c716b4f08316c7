"""What hosts no longer need goes last, by a rule; what anybody may still lack stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailtrain.planning import layout
from tailtrain.planning.observed import StoredFolder, StoredRun
from tailtrain.planning.parts import Phase, Removal
from tests.plans.situations import NAMES, SEVENTH, Situation, dataset


def removals(situation: Situation, name: str = "judge") -> list[Removal]:
    return list(situation.plan().host(name).removals)


def run(number: int, state: str = "finished") -> StoredRun:
    return StoredRun(f"{number:016x}", state, 1000 * number, float(number))


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
def test_the_newest_runs_are_kept_besides_the_one_at_hand(keep: int) -> None:
    situation = Situation().applied().with_settings(keep_runs=keep)
    at_hand = StoredRun(situation.plan().run_id, "finished", 5, 0.5)
    situation.on("judge", runs=(run(2), at_hand, run(4, "stopped"), run(1), run(3)))
    gone = [f"{layout.RUN_DIR}/{number:016x}" for number in (4, 3, 2, 1)][keep:]
    assert [path for removal in removals(situation) for path in removal.paths] == gone


def test_a_folder_that_does_not_bear_the_name_of_a_run_is_left_alone() -> None:
    situation = Situation().applied().with_settings(keep_runs=0)
    odd = ("notes", "../../../etc", "0123456789abcdeF", "0" * 15, "\udcff")
    situation.on("judge", runs=tuple(StoredRun(name, "", 5, 1.0) for name in odd))
    assert removals(situation) == []


def test_what_is_freed_is_said() -> None:
    situation = Situation().applied()
    situation.on("judge", runs=(run(1), run(2), run(3), run(4)))
    [action] = [action for action in situation.plan().host("judge").actions if action.key == "prune"]
    assert action.phase is Phase.CLEAN
    assert action.why == "no longer needed; frees 3.0 kB"
    assert sum(removal.bytes for removal in removals(situation)) == 3000


def test_the_newest_environment_and_code_not_in_use_are_kept_too() -> None:
    situation = Situation().applied()
    material = situation.material
    stored = [
        StoredFolder(layout.ENVIRONMENT_DIR, "e3", 0),
        StoredFolder(layout.ENVIRONMENT_DIR, material.locks["worker-cpu"], 0),
        StoredFolder(layout.ENVIRONMENT_DIR, "e2", 700),
        StoredFolder(layout.CODE_DIR, material.code_id, 0),
        StoredFolder(layout.CODE_DIR, "c2", 0),
        StoredFolder(layout.CODE_DIR, "c1", 70),
    ]
    situation.on("judge", stored=tuple(stored))
    assert [(removal.paths, removal.bytes) for removal in removals(situation)] == [
        ((f"{layout.ENVIRONMENT_DIR}/e2",), 700),
        ((f"{layout.CODE_DIR}/c1",), 70),
    ]


def test_chunks_that_went_to_a_new_node_go_from_the_old_ones() -> None:
    situation = Situation().applied(state="training", unit="active").add(SEVENTH)
    plan = situation.plan()
    for name in NAMES:
        host = plan.host(name)
        released = {path.rpartition("/")[2] for removal in host.removals for path in removal.paths}
        assert released == situation.answer(name).chunks - host.wanted_chunks
        assert not released & host.wanted_chunks
    assert any(plan.host(name).removals for name in NAMES)


def test_no_chunk_goes_while_somebody_is_away() -> None:
    situation = Situation().applied().add(SEVENTH).unreachable(SEVENTH.hostname, "no answer")
    situation.on("judge", stray_chunks={"f" * 64: 10}, runs=(run(1), run(2), run(3)))
    [only] = removals(situation)
    assert only.what.startswith("run ")


def test_a_data_set_that_is_declared_no_more_goes() -> None:
    situation = Situation().applied()
    old = situation.answer("judge")
    situation.datasets = (dataset("natural", "p", (5,) * 300, (7,)),)
    # The probe asks for the declared chunks; what else there is it calls stray.
    situation.on("judge", chunks=frozenset(), stray_chunks=dict.fromkeys(sorted(old.chunks), 300))
    whats = [(removal.what, removal.why) for removal in removals(situation)]
    assert whats == [
        (f"{len(old.chunks)} chunks", "of no declared data set"),
        ("1 manifest", "of no declared data set"),
    ]


def test_nothing_is_left_to_remove_when_it_was_removed() -> None:
    situation = Situation().applied().add(SEVENTH).applied()
    assert not situation.plan().changes
    assert all(not host.removals for host in situation.plan().hosts)


def test_a_damaged_chunk_that_is_not_wanted_goes_too() -> None:
    situation = Situation().applied().add(SEVENTH).applied()
    answer = situation.answer("judge")
    elsewhere = min(set().union(*(situation.answer(name).chunks for name in NAMES)) - answer.chunks)
    situation.observed["judge"] = replace(answer, damaged={elsewhere: "has 3 bytes instead of 300"})
    assert [removal.paths for removal in removals(situation)] == [(f"{layout.CHUNK_DIR}/{elsewhere}",)]
