"""When states are written, and what a fleet goes on from after all nodes have crashed at once."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.worker.checkpoints import is_due
from tailtrain.worker.config import load_config
from tailtrain.worker.node_state import NodeState
from tailtrain.worker.reading.supply import Supply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], Path]]:
    """Mounts a file system of 4 MB, and gives a file on it that fills it when written to."""
    mounted: list[Path] = []

    def mount(place: Path) -> Path:
        place.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], check=True)
        mounted.append(place)
        return place / "hog"

    yield mount
    for place in mounted:
        subprocess.run(["umount", "--lazy", place], check=True)


def _fill(hog: Path) -> None:
    with suppress(OSError), hog.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _written(fleet: Any, index: int) -> set[str]:
    return {path.name for path in (fleet.run_dir(index) / "checkpoints").iterdir()} - {"hog"}


def test_states_are_written_after_the_same_averagings_of_all() -> None:
    assert all(is_due(number, every=1, all_each=1) for number in range(9))
    assert [number for number in range(9) if is_due(number, every=3, all_each=1)] == [2, 5, 8]
    # Pairs in between: all average in rounds 3, 7, 11 and 15.
    assert [number for number in (3, 7, 11, 15) if is_due(number, every=2, all_each=4)] == [7, 15]


def test_after_a_crash_of_all_nodes_they_go_on_from_a_state_in_common(make_fleet: Callable[..., Any]) -> None:
    fleet = make_fleet(3, quorum=2, checkpoint_rounds=2)
    fleet.start()
    fleet.until(lambda: all(len(fleet.progress(index)) >= 3 for index in range(3)), 90, "three rounds")
    for index in range(3):
        fleet.kill(index)
    written = [
        {path.name for path in (fleet.run_dir(index) / "checkpoints").glob("round-*")} for index in range(3)
    ]
    assert all(int(name.removeprefix("round-")) % 2 for name in written[0])
    assert written[0] & (written[1] | written[2]), "the primary and at least one other have the same"
    before = [len(fleet.progress(index)) for index in range(3)]
    fleet.start()
    fleet.until(
        lambda: all(len(fleet.progress(index)) >= before[index] + 2 for index in range(3)), 90, "they go on"
    )
    for index in range(3):
        fleet.stop(index)
    again = [fleet.progress(index)[before[index]]["round"] for index in range(3)]
    newest = max(int(name.removeprefix("round-")) for names in written for name in names)
    assert min(again) == newest + 1
    digests: dict[int, set[str]] = {}
    for index in range(3):
        for line in fleet.progress(index)[before[index] :]:
            digests.setdefault(line["round"], set()).add(line["weights_sha256"])
    assert all(len(found) == 1 for found in digests.values())


@as_root
def test_on_a_full_disk_training_goes_on_and_the_next_save_with_room_works(
    make_fleet: Callable[..., Any], small_disk: Callable[[Path], Path]
) -> None:
    fleet = make_fleet(2, round_seconds=1.0)
    hog = small_disk(fleet.run_dir(1) / "checkpoints")
    fleet.start()
    fleet.until(lambda: len(fleet.progress(1)) >= 1, 60, "a round")
    _fill(hog)
    said = "cannot be saved (found No space left on device, "
    fleet.until(lambda: said in fleet.status(1)["message"], 20, "n1 says it")
    before = len(fleet.progress(1))
    fleet.until(lambda: len(fleet.progress(1)) >= before + 3, 30, "n1 trains on")
    assert fleet.status(1)["starts"] == 1
    assert all(name.startswith("round-") for name in _written(fleet, 1)), "nothing half-written stays"
    hog.unlink()
    saved = _written(fleet, 1)
    fleet.until(lambda: bool(_written(fleet, 1) - saved), 20, "the next save works")
    fleet.until(lambda: fleet.status(1)["state"] == "training" and not fleet.status(1)["message"], 20, "well")

    _fill(hog)
    fleet.until(lambda: said in fleet.status(1)["message"], 20, "full again")
    assert fleet.stop(1) == 1
    status = fleet.status(1)
    assert status["state"] == "failed"
    assert status["message"].startswith(f"n1: {hog.parent}: the state after round ")
    assert status["message"].endswith("bytes free). Make room on that disk, then: tailtrain resume")


@as_root
def test_where_no_status_can_be_written_either_training_goes_on_and_the_log_says_why_it_ends(
    make_fleet: Callable[..., Any], small_disk: Callable[[Path], Path]
) -> None:
    fleet = make_fleet(2, round_seconds=1.0)
    hog = small_disk(fleet.run_dir(1))
    fleet.start()
    fleet.until(lambda: len(fleet.progress(1)) >= 1, 60, "a round")
    _fill(hog)
    before = len(fleet.progress(0))
    fleet.until(lambda: len(fleet.progress(0)) >= before + 4, 30, "they go on")
    assert len(fleet.progress(0)[-1]["group"]) == 2
    assert fleet.stop(1) == 1
    log = (fleet.root / "n1.log").read_text()
    assert f"n1: {hog.parent}: the status cannot be written (found No space left on device" in log
    assert log.splitlines()[-1].startswith(f"error: n1: {hog.parent}/checkpoints: the state after round ")
    assert "Traceback" not in log


def test_what_a_worker_that_was_killed_in_a_save_left_is_removed_at_the_next_start(
    make_fleet: Callable[..., Any],
) -> None:
    fleet = make_fleet(2)
    config = load_config(fleet.write_config(0))
    folder = config.run_dir / "checkpoints"
    for name in (".round-000003.4711", ".round-000002.old", ".round-000001.old", "round-000002"):
        (folder / name).mkdir(parents=True)
    NodeState(config, Supply(config))
    assert _written(fleet, 0) == {"round-000001", "round-000002"}
