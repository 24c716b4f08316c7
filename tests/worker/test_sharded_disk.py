"""Checkpoints on a disk that is full, and on their way to the primary."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.errors import LostNodeError, WorkerError
from tailtrain.worker.config import ModelConfig
from tailtrain.worker.sharded.checkpoints import Checkpoints, finished_checkpoint
from tailtrain.worker.sharded.config import load_sharded
from tailtrain.worker.sharded.disk import require_room
from tailtrain.worker.sharded.fatal import FatalWord, leave_fatal
from tailtrain.worker.sharded.handover import Giver, take
from tailtrain.worker.sharded.layout import whole_model
from tests.worker.sharded_fleet import START, ShardedFleet, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

MakeFleet = Callable[..., Any]
WHOLE = whole_model(ModelConfig(layers=3, width=16, heads=4, context=8))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk of its own can be mounted by root alone")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "full").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free)


def test_a_full_disk_is_an_error_and_leaves_no_half_checkpoint(small_disk: Path) -> None:
    store = Checkpoints(small_disk / "checkpoints", run_id="r", whole=WHOLE, keep=2)
    state = write_checkpoint(store, 0, WHOLE)
    fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        store.begin(1)
    assert [path.name for path in (small_disk / "checkpoints").iterdir()] == ["round-000000"]
    assert store.newest(pytest.fail) == state


def test_a_last_word_needs_no_room_and_the_next_start_names_disk_and_host(
    make_fleet: MakeFleet, small_disk: Path
) -> None:
    fleet = ShardedFleet(make_fleet(2), (1.0, 1.0), steps=1)
    shutil.copytree(fleet.fleet.state(0), small_disk, dirs_exist_ok=True)
    fleet.fleet.configs[0]["state_dir"] = str(small_disk)
    config = load_sharded(fleet.write(0))
    word = FatalWord(config)
    fill(small_disk)
    assert not word.came()
    leave_fatal(config, LostNodeError("the node is lost", host="n0"))
    assert word.came()
    with pytest.raises(LostNodeError, match="n0: the node is lost"):
        word.raise_if_came()
    word.close()
    with pytest.raises(WorkerError, match=rf"^n0: {small_disk}.*no room for a checkpoint \(found 0 MiB free"):
        require_room(config)
    # The same of the primary's whole unit: one line, and no loop within it.
    fleet.start(0)
    assert fleet.processes[0].wait(30) == 1
    assert f"error: n0: {small_disk}" in (fleet.root / "s0.log").read_text()


def test_a_disk_that_fills_while_training_ends_the_node_with_a_word(
    make_fleet: MakeFleet, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    fleet = ShardedFleet(make_fleet(2), (1.0, 1.0), steps=100_000)
    shutil.copytree(fleet.fleet.state(1), small_disk, dirs_exist_ok=True)
    fleet.fleet.configs[1]["state_dir"] = str(small_disk)
    try:
        fleet.start()
        fleet.until(lambda: fleet.status(0)["round"] >= 0, START, "both train")
        fill(small_disk)
        assert fleet.processes[1].wait(60) == 1
        log = (fleet.root / "s1.log").read_text()
        assert f"error: n1: {small_disk}" in log
        assert "the disk does not take what is to be written (found No space left on device" in log
        fleet.until(lambda: fleet.status(0)["state"] == "paused", 60, "the other waits for it")
        # There is room again: systemd's next start goes on.
        (small_disk / "full").unlink()
        done = fleet.status(0)["round"]
        fleet.start(1)
        fleet.until(lambda: fleet.status(0)["round"] > done, START, "both go on")
    finally:
        fleet.close()


def test_the_last_checkpoint_goes_to_the_primary_whole(make_fleet: MakeFleet) -> None:
    fleet = ShardedFleet(make_fleet(2), (1.0, 1.0), steps=1)
    giving, taking = (load_sharded(fleet.write(index)) for index in (1, 0))
    run, whole = giving.worker.run_id, whole_model(giving.worker.model)
    folders = {config.worker.node: config.worker.run_dir / "checkpoints" for config in (giving, taking)}
    store = Checkpoints(folders["n1"], run_id=run, whole=whole, keep=2)
    write_checkpoint(store, 1, whole)
    assert finished_checkpoint(folders["n1"], run) is None
    with pytest.raises(ConnectionRefusedError):
        take(taking, "n1")
    write_checkpoint(store, 2, whole, finished=True)
    last = finished_checkpoint(folders["n1"], run)
    assert last is not None
    giver = Giver(giving, last)
    try:
        take(taking, "n1")
        taken = finished_checkpoint(folders["n0"], run)
        assert taken == folders["n0"] / last.name
        assert {path.name: path.read_bytes() for path in taken.iterdir()} == {
            path.name: path.read_bytes() for path in last.iterdir()
        }
        shutil.rmtree(taken)
        weights = last / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
        with pytest.raises(WorkerError, match="a checkpoint is damaged"):
            take(taking, "n1")
        assert list(folders["n0"].iterdir()) == []
    finally:
        giver.close()
