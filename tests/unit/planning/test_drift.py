"""What somebody else changed on a host: named, with what was applied, what is there, what is wanted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from tailtrain.planning import layout
from tailtrain.planning.carried import chunks_on
from tailtrain.planning.drift import sha256_of
from tests.plans.situations import GIB, NAMES, Situation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.planning.parts import Drift

WORKER_UNIT = f"{layout.UNIT_DIR}/{layout.WORKER_UNIT}"


def drift(situation: Situation, name: str = "judge") -> list[Drift]:
    return list(situation.plan().host(name).drift)


def finished() -> Situation:
    return Situation().applied()


def training() -> Situation:
    return Situation().applied(state="training", round_number=3, unit="active")


@pytest.mark.parametrize("make", [Situation, finished, training])
def test_a_host_as_it_was_left_has_none(make: Callable[[], Situation]) -> None:
    situation = make()
    assert [drift(situation, name) for name in NAMES] == [[]] * len(NAMES)


def test_an_edited_file_is_named_three_ways() -> None:
    situation = finished()
    files = situation.answer("judge").files
    applied, edited = files[WORKER_UNIT], f"{files[WORKER_UNIT]}# mine\n"
    assert applied is not None
    situation.on(
        "judge", files={**files, WORKER_UNIT: edited}, modified={WORKER_UNIT: "2026-11-02 09:30 UTC"}
    )
    [found] = drift(situation)
    assert found.subject == WORKER_UNIT
    assert found.receipt == f"{sha256_of(applied)[:12]}, applied 2026-11-01T12:00:00+00:00 by ana@desk"
    assert found.found == f"{sha256_of(edited)[:12]}, written 2026-11-02 09:30 UTC"
    assert found.wanted == sha256_of(applied)[:12]
    assert situation.plan().host("judge").does("files"), "and it is put right"


def test_a_removed_file_is_missing() -> None:
    situation = finished()
    situation.on("judge", files={**situation.answer("judge").files, WORKER_UNIT: None})
    assert [(found.subject, found.found) for found in drift(situation)] == [(WORKER_UNIT, "missing")]


def test_what_is_declared_anew_is_a_planned_change_and_no_drift() -> None:
    situation = training().with_settings(training={"batch_size": 4})
    assert situation.plan().changes
    assert drift(situation) == []


def test_an_edit_of_a_file_that_is_to_change_anyway_shows_all_three() -> None:
    situation = training()
    situation.on("judge", files={**situation.answer("judge").files, layout.CONFIG: "{}\n"})
    situation.with_settings(training={"batch_size": 4})
    [found] = drift(situation)
    assert len({found.receipt[:12], found.found[:12], found.wanted}) == 3


@pytest.mark.parametrize("active", ["inactive", "failed"])
def test_a_worker_that_somebody_stopped(active: str) -> None:
    situation = training()
    situation.unit("judge", active, since="2026-11-02 09:30 UTC")
    [found] = drift(situation)
    assert (found.subject, found.receipt, found.wanted) == (layout.WORKER_UNIT, "started", "running")
    assert found.found == f"{active} since 2026-11-02 09:30 UTC"


def test_a_stop_of_ours_disables_the_unit_and_is_none() -> None:
    situation = training()
    situation.unit("judge", "inactive", enabled=False)
    assert drift(situation) == []
    assert situation.plan().host("judge").does("start")


def test_a_worker_that_would_not_start_with_its_host_is_named_and_put_right() -> None:
    situation = training()
    situation.unit("judge", "active", enabled=False)
    [found] = drift(situation)
    assert (found.receipt, found.found) == ("starts when the host boots", "does not")
    host = situation.plan().host("judge")
    assert host.does("start")
    assert not host.does("restart")


def test_a_worker_that_failed_by_itself_is_no_drift() -> None:
    situation = training()
    run = replace(situation.answer("judge").run, state="failed")
    situation.on("judge", run=run).unit("judge", "failed")
    assert drift(situation) == []


def test_a_damaged_chunk_and_missing_ones() -> None:
    situation = finished()
    answer = situation.answer("judge")
    damaged, *gone = sorted(chunks_on(answer))[:3]
    situation.on(
        "judge",
        chunks=answer.chunks - {damaged, *gone},
        damaged={damaged: "has other content than its name says"},
    )
    first, second = drift(situation)
    assert first.subject == f"chunk {damaged[:16]}"
    assert (first.receipt, first.found, first.wanted) == (
        "verified",
        "has other content than its name says",
        "verified",
    )
    assert (second.subject, second.found) == ("2 chunks", "missing")


def test_a_damaged_copy_for_other_nodes() -> None:
    situation = finished()
    answer = situation.answer("judge")
    copy = min(answer.chunks - chunks_on(answer))
    situation.on("judge", chunks=answer.chunks - {copy}, damaged={copy: "is cut short"})
    [found] = drift(situation)
    assert (found.subject, found.found) == (f"chunk {copy[:16]}", "is cut short")
    [move] = situation.plan().host("judge").moves
    assert move.why.startswith("damaged, of ")


def test_a_chunk_server_that_somebody_stopped() -> None:
    situation = finished().unit("judge", "inactive", layout.CHUNKS_UNIT, since="2026-11-02 09:30 UTC")
    [found] = drift(situation)
    assert (found.subject, found.receipt, found.wanted) == (layout.CHUNKS_UNIT, "started", "running")
    assert found.found == "inactive since 2026-11-02 09:30 UTC"
    situation.unit("judge", "activating", layout.CHUNKS_UNIT)
    assert drift(situation) == []


def test_a_chunk_server_that_was_never_applied_is_no_drift() -> None:
    situation = finished()
    receipt = situation.answer("judge").receipt
    assert receipt is not None
    files = {path: applied for path, applied in receipt.files.items() if layout.CHUNKS_UNIT not in path}
    situation.on("judge", receipt=msgspec.structs.replace(receipt, files=files))
    situation.unit("judge", "inactive", layout.CHUNKS_UNIT, enabled=False)
    assert drift(situation) == []


def test_chunks_that_a_host_never_had_are_no_drift() -> None:
    situation = finished()
    situation.on("judge", chunks=frozenset(), files={**situation.answer("judge").files, layout.CONFIG: "{}"})
    assert [found.subject for found in drift(situation)] == [layout.CONFIG]


@pytest.mark.parametrize(
    ("hardware", "subject", "found"),
    [
        ({"cores": 2, "usable_cores": 2.0}, "cores", "2"),
        ({"memory_bytes": 4 * GIB}, "memory", "4.0 GiB"),
        ({"gpus": ("0000:01:00.0",)}, "GPUs", "1"),
    ],
)
def test_other_hardware(hardware: dict[str, object], subject: str, found: str) -> None:
    [only] = drift(finished().hardware("judge", **hardware))
    assert (only.subject, only.found) == (subject, found)


def test_the_memory_that_a_new_kernel_takes_is_none() -> None:
    situation = finished()
    memory = situation.answer("judge").hardware.memory_bytes
    assert drift(situation.hardware("judge", memory_bytes=memory - 20 * 2**20)) == []


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({"account": False}, "account tailtrain and its folders"),
        ({"environments": frozenset()}, "environment 10cc000000000001"),
        ({"codes": frozenset()}, "code c0de000000000001"),
        ({"peer_id": None}, "peer identity"),
    ],
)
def test_a_part_that_was_taken_away(fields: dict[str, object], subject: str) -> None:
    assert [found.subject for found in drift(finished().on("judge", **fields))] == [subject]


def test_other_permissions_are_named_and_put_right() -> None:
    situation = finished().on("judge", modes={layout.CONFIG: "0644 root:tailtrain"})
    [found] = drift(situation)
    assert (found.subject, found.receipt, found.found) == (
        layout.CONFIG,
        "0640 root:tailtrain",
        "0644 root:tailtrain",
    )
    [action] = situation.plan().host("judge").actions
    assert (action.key, action.why) == ("files", "permissions or owner differ")


def test_somebody_s_own_changes_to_a_unit_are_named_and_left() -> None:
    path = f"{WORKER_UNIT}.d/mine.conf"
    situation = finished().unit("judge", "inactive", drop_ins=(path,))
    [found] = drift(situation)
    assert (found.subject, found.found) == (layout.WORKER_UNIT, f"changed by {path}")
    assert not situation.plan().changes


def test_a_worker_whose_code_was_changed_is_started_again_with_the_right_one() -> None:
    host = training().on("judge", codes=frozenset()).plan().host("judge")
    assert host.does("code")
    assert host.does("restart")


def test_without_a_receipt_nothing_can_have_drifted() -> None:
    situation = finished()
    situation.on("judge", receipt=None, chunks=frozenset(), account=False)
    assert drift(situation) == []


def test_a_configuration_that_makes_no_sense_is_drift_and_no_crash() -> None:
    situation = finished()
    for text in ("", "[]", json.dumps({"data": [{"ranges": [[1]], "heldout": 3}]})):
        situation.on("judge", files={**situation.answer("judge").files, layout.CONFIG: text})
        assert [found.subject for found in drift(situation)] == [layout.CONFIG]


def test_when_all_is_put_right_there_is_none() -> None:
    situation = finished()
    situation.on("judge", files={}, account=False).hardware("judge", cores=2, usable_cores=2.0)
    assert drift(situation)
    situation.applied()
    assert drift(situation) == []
    receipt = situation.answer("judge").receipt
    assert receipt is not None
    assert msgspec.json.decode(receipt.encode())["cores"] == 2
