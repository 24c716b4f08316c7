"""What nodes that met agree on: who has the newest checkpoint, whether it is here, who trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tailtrain.errors import UnsupportedError
from tailtrain.worker.sharded.checkpoints import BEGINNING
from tailtrain.worker.sharded.config import load_sharded
from tailtrain.worker.sharded.layout import whole_model
from tailtrain.worker.sharded.members import Known, Member, holders, newest, shares, writers
from tests.worker.sharded_fleet import ShardedFleet

MakeFleet = Callable[..., Any]


def member(node: str, step: int, *on: str, known: int | None = None) -> Member:
    state = replace(BEGINNING, round=step // 10, step=step, weights_sha256=f"{step}") if step else BEGINNING
    return Member(node, state, Known(step if known is None else known, on))


def test_all_that_wrote_a_commit_have_it_whatever_their_clocks_say() -> None:
    one, other = member("n0", 20), member("n1", 20)
    later = replace(other, state=replace(other.state, committed_unix=one.state.committed_unix + 0.1))
    redone = replace(other, node="n2", state=replace(other.state, weights_sha256="other"))
    assert holders([one, later, redone, member("n3", 10)], one.state) == [0, 1]
    assert holders([member("n0", 0), member("n1", 0)], BEGINNING) == []


def test_an_older_checkpoint_is_not_gone_on_from_while_the_newest_is_away(make_fleet: MakeFleet) -> None:
    config = load_sharded(ShardedFleet(make_fleet(4), (1.0,) * 4, steps=1).write(2))
    both = [member("n2", 0, "n0", "n1", known=20), member("n3", 0, "n0", known=10)]
    with pytest.raises(UnsupportedError, match=r"the checkpoint of step 20 is on n0, n1, which are away"):
        newest(config, both)
    one = member("n1", 20, "n0", "n1")
    assert newest(config, [one, *both]) == (one.state, Known(20, ("n0", "n1")))
    # One that has it no more, as its disk is another, and one that left the fleet are not waited for.
    assert newest(config, [member("n0", 0), member("n1", 0), *both])[0] == BEGINNING
    gone = [member("n2", 10, "departed", known=20), member("n3", 0, "departed", known=20)]
    assert newest(config, gone) == (gone[0].state, Known(10, ("n2",)))


def test_checkpoints_are_written_where_there_is_room_the_primary_first(make_fleet: MakeFleet) -> None:
    config = load_sharded(ShardedFleet(make_fleet(4), (1.0,) * 4, steps=1, microbatches=4).write(1))
    all_four = [member(f"n{index}", 0) for index in range(4)]
    division = shares(config, whole_model(config.worker.model), all_four)
    assert writers(config, division, all_four) == (0, 1)
    full = [replace(each, room=each.node in ("n0", "n2")) for each in all_four]
    assert writers(config, division, full) == (0, division["n2"].rank)
    with pytest.raises(UnsupportedError, match="no node that is here has room for a checkpoint"):
        writers(config, division, [replace(each, room=False) for each in all_four])


@pytest.mark.parametrize("strategy", ["pipelineParallel", "modelParallel"])
def test_the_primary_is_always_among_those_that_train(make_fleet: MakeFleet, strategy: str) -> None:
    fleet = ShardedFleet(make_fleet(4), (9.0, 9.0, 9.0, 1.0), steps=1, strategy=strategy, microbatches=2)
    for config in fleet.fleet.configs:
        config["role"] = "primary" if config["node"] == "n3" else "compute"
        for peer in config["coordination"]["peers"]:
            peer["role"] = "primary" if peer["node"] == "n3" else "compute"
    config = load_sharded(fleet.write(1))
    whole = whole_model(config.worker.model)
    division = shares(config, whole, [member(f"n{index}", 0) for index in (0, 1, 3)])
    assert len(division) == 2
    assert division["n3"].rank == 2
