"""Nodes die, stop, come late, come back; damaged files; other runs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tailtrain.fleet.identity import new_identity

MakeFleet = Callable[..., Any]


def _rounds(fleet: Any, index: int) -> int:
    return len(fleet.progress(index))


def test_a_killed_worker_rejoins_with_the_others_state_and_a_true_ledger(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(3, quorum=2)
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 2 for i in range(3)), 60, "two rounds of three")
    fleet.kill(2)
    before = _rounds(fleet, 0)
    fleet.until(lambda: _rounds(fleet, 0) >= before + 3, 40, "the others go on")
    without = fleet.progress(0)[before:]
    # At most the round in which it died takes a few seconds longer.
    *usual, longest = sorted(line["averaging_seconds"] for line in without)
    assert longest < 8
    assert usual[-1] < 2
    assert [member["node"] for member in without[-1]["group"]] == ["n0", "n1"]
    fleet.start(2)
    fleet.until(lambda: len(fleet.progress(0)[-1]["group"]) == 3, 40, "n2 is back")
    fleet.until(
        lambda: fleet.progress(2)[-1]["round"] == fleet.progress(0)[-1]["round"], 10, "in the same round"
    )
    assert fleet.status(2)["starts"] == 2
    assert "loads the state after round" in (fleet.root / "n2.log").read_text()
    for index in (2, 1, 0):  # those that are left may do another round
        fleet.stop(index)
    lines = {line["round"]: line for line in fleet.progress(0)}
    for line in fleet.progress(2):
        assert line["weights_sha256"] == lines[line["round"]]["weights_sha256"]
    # Every committed token of every node, and nothing else, is in the total.
    trained: dict[str, int] = {}
    for line in fleet.progress(0):
        for member in line["group"]:
            trained[member["node"]] = trained.get(member["node"], 0) + member["tokens"]
    assert fleet.status(0)["total_tokens"] == sum(trained.values())
    assert fleet.status(2)["tokens"] == trained["n2"]


def test_a_frozen_node_delays_one_round_and_rejoins_when_it_thaws(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(3, quorum=2)
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 2 for i in range(3)), 60, "two rounds of three")
    os.killpg(fleet.processes[2].pid, signal.SIGSTOP)
    before = _rounds(fleet, 0)
    fleet.until(lambda: _rounds(fleet, 0) >= before + 4, 60, "the others go on")
    *usual, longest = sorted(line["averaging_seconds"] for line in fleet.progress(0)[before:])
    assert longest < 15
    assert usual[-1] < 2
    os.killpg(fleet.processes[2].pid, signal.SIGCONT)
    fleet.until(lambda: len(fleet.progress(0)[-1]["group"]) == 3, 60, "n2 is back")


@pytest.mark.parametrize("protocol", ["decentralized", "centralized"])
def test_a_killed_primary_comes_back(make_fleet: MakeFleet, protocol: str) -> None:
    fleet = make_fleet(2, protocol=protocol, quorum=2)
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 2 for i in range(2)), 60, "two rounds")
    fleet.kill(0)
    fleet.until(lambda: fleet.status(1)["state"] == "paused", 40, "the other node waits")
    assert "n0" in fleet.status(1)["message"]
    seen = _rounds(fleet, 1)
    fleet.start(0)
    fleet.until(lambda: _rounds(fleet, 1) >= seen + 2, 60, "they go on")
    for index in range(2):
        fleet.stop(index)
    rounds = [line["round"] for line in fleet.progress(1)]
    assert rounds == list(range(len(rounds)))
    last = {fleet.progress(i)[-1]["round"]: fleet.progress(i)[-1]["weights_sha256"] for i in range(2)}
    assert len(set(last.values())) == len(last)


def test_a_worker_with_other_code_is_refused_by_name_and_the_others_go_on(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(3, quorum=2)
    fleet.configs[2]["coordination"]["made_of"] = {"code": "beef", "data": "da7a", "plan": "91a9"}
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 2 for i in range(2)), 60, "two rounds of the others")
    assert [member["node"] for member in fleet.progress(0)[-1]["group"]] == ["n0", "n1"]
    assert _rounds(fleet, 2) == 0
    for index in range(2):
        said = (fleet.root / f"n{index}.log").read_text()
        assert said.count("left out: n2: code: a node runs other code (found beef, expected c0de)") == 1
    log = fleet.root / "n2.log"
    fleet.until(lambda: "left out: n0: code: a node runs other code" in log.read_text(), 20, "n2 is told why")
    # With the others' code it takes part.
    fleet.stop(2)
    fleet.configs[2]["coordination"]["made_of"]["code"] = "c0de"
    fleet.start(2)
    fleet.until(lambda: len(fleet.progress(0)[-1]["group"]) == 3, 40, "n2 takes part")


def test_below_the_quorum_the_run_pauses_and_says_for_whom(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(3, quorum=3)
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 1 for i in range(3)), 60, "a round of three")
    fleet.kill(1)
    fleet.until(lambda: fleet.status(0)["state"] == "paused", 30, "n0 pauses")
    fleet.until(lambda: "n1" in fleet.status(0)["message"], 30, "n0 says whom it misses")
    before = _rounds(fleet, 0)
    fleet.start(1)
    fleet.until(lambda: _rounds(fleet, 0) > before, 60, "the run goes on")


def test_without_fault_tolerance_a_lost_node_ends_the_run_with_an_error(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2, quorum=2, fault_tolerance=False, averaging_timeout_seconds=6.0)
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 1 for i in range(2)), 60, "a round")
    fleet.kill(1)
    assert fleet.wait(40, 0) == [3], "its unit does not start it again"
    status = fleet.status(0)
    assert status["state"] == "failed"
    assert "n1: a node was lost" in status["message"]
    rounds = _rounds(fleet, 0)
    fleet.start()
    fleet.until(lambda: _rounds(fleet, 0) > rounds + 1, 60, "it can be resumed")


def test_a_late_node_joins_the_present_round(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(3, quorum=2)
    fleet.start(0, 1)
    fleet.until(lambda: _rounds(fleet, 0) >= 2, 60, "two start without the third")
    fleet.start(2)
    fleet.until(lambda: _rounds(fleet, 2) >= 1, 60, "the third joins")
    assert "loads the state after round" in (fleet.root / "n2.log").read_text()
    first = fleet.progress(2)[0]
    assert first["round"] >= 2
    assert len(first["group"]) == 3


def test_stop_and_resume_goes_on_where_the_last_averaging_left_it(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2, quorum=2)
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 2 for i in range(2)), 60, "two rounds")
    for index in range(2):
        assert fleet.stop(index, seconds=10.0) == 0
        assert fleet.status(index)["state"] == "stopped"
        with pytest.raises(ProcessLookupError):  # hivemind's daemon has ended too
            os.killpg(fleet.processes[index].pid, 0)
    rounds = max(_rounds(fleet, i) for i in range(2))
    states = [
        json.loads(path.read_bytes()) for path in sorted(fleet.run_dir(0).glob("checkpoints/*/state.json"))
    ]
    assert states[-1]["round"] == fleet.progress(0)[-1]["round"]
    fleet.start()
    fleet.until(lambda: _rounds(fleet, 0) > rounds, 60, "it goes on")
    line = fleet.progress(0)[rounds]
    assert line["round"] == rounds
    assert line["group"][0]["loss"] < 1.5, "resumed weights, not new ones"


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2, quorum=2)
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 3 for i in range(2)), 60, "three rounds")
    for index in range(2):
        fleet.stop(index)
    newest = max(fleet.run_dir(1).glob("checkpoints/round-*"))
    weights = newest / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    rounds = _rounds(fleet, 0)
    fleet.start()
    fleet.until(lambda: _rounds(fleet, 0) > rounds, 60, "it goes on")
    log = (fleet.root / "n1.log").read_text()
    assert f"{newest}" in log
    assert "using the one before" in log


def test_nodes_of_another_run_do_not_mix_in(make_fleet: MakeFleet) -> None:
    """n2 has the same peers and address but another run id."""
    fleet = make_fleet(3, quorum=2)
    fleet.configs[2]["run_id"] = "fedcba9876543210"
    fleet.start()
    fleet.until(lambda: _rounds(fleet, 0) >= 3, 60, "the two train")
    assert all(len(line["group"]) == 2 for line in fleet.progress(0))
    assert fleet.status(2)["state"] == "waiting"
    assert "1 of 3" in fleet.status(2)["message"]


def test_a_peer_with_another_identity_is_refused(make_fleet: MakeFleet) -> None:
    """n2 is not who the others' configurations say it is."""
    fleet = make_fleet(3, quorum=2)
    (fleet.state(2) / "identity.key").write_bytes(new_identity()[0])
    fleet.start()
    fleet.until(lambda: _rounds(fleet, 0) >= 3, 60, "the two train")
    assert all({m["node"] for m in line["group"]} <= {"n0", "n1"} for line in fleet.progress(0))


def test_a_node_without_data_takes_part(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2, quorum=2)
    for domain, seen in zip(fleet.configs[1]["data"], fleet.configs[0]["data"], strict=True):
        domain["ranges"] = seen["others"]["n1"] = []
    fleet.start()
    fleet.until(lambda: all(_rounds(fleet, i) >= 2 for i in range(2)), 60, "two rounds")
    line = fleet.progress(1)[-1]
    assert [member["tokens"] > 0 for member in line["group"]] == [True, False]


def test_a_node_alone_trains_without_peers(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(1, quorum=1, target_tokens=100_000)
    fleet.start()
    assert fleet.wait(60) == [0]
    assert fleet.status(0)["state"] == "finished"


def test_a_node_that_missed_the_end_learns_it_from_the_delivered_model(make_fleet: MakeFleet) -> None:
    """The others have gone; the deploy brings the final model, and the node stops waiting for them."""
    fleet = make_fleet(2, quorum=2)
    fleet.start(1)
    fleet.until(lambda: fleet.status(1)["state"] == "waiting", 30, "it waits")
    final = fleet.run_dir(1) / "final"
    final.mkdir()
    (final / "manifest.json").write_text("{}")
    assert fleet.wait(20, 1) == [0]
    assert fleet.status(1)["state"] == "finished"
    assert "not in the final average" in fleet.status(1)["message"]
