"""Committed states: resumed to the bit, damaged ones named, foreign ones refused."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tailtrain.errors import PeerError
from tailtrain.worker.config import WorkerConfig, load_config
from tailtrain.worker.ledger import PROTOCOL, Contribution, Entry
from tailtrain.worker.node_state import NodeState
from tailtrain.worker.reading.supply import Supply
from tailtrain.worker.uncommitted import Uncommitted

if TYPE_CHECKING:
    from pathlib import Path

NO_READING: dict[str, Any] = {"progress": {}, "group": {}}
MakeFleet = Callable[..., Any]


def _begun(config: WorkerConfig) -> NodeState:
    """A node's state as it is when the node starts."""
    state = NodeState(config, Supply(config))
    state.roll_back()
    return state


@pytest.fixture
def configs(make_fleet: MakeFleet) -> list[WorkerConfig]:
    fleet = make_fleet(2, outer_momentum=0.5, outer_learning_rate=0.7)
    return [load_config(fleet.write_config(index)) for index in range(2)]


@pytest.fixture
def config(configs: list[WorkerConfig]) -> WorkerConfig:
    return configs[0]


def _steps(count: int) -> Callable[[], bool]:
    """Stops training after this many steps."""
    left = [count]

    def stopping() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stopping


def _round(state: NodeState, number: int, *, node: str = "n0", other: torch.Tensor | None = None) -> None:
    """Train ten steps and commit them, averaged with another node's weights where given."""
    work = state.trainer.train_until(time.time() + 60, state.progress_after(0), _steps(10))
    vector = state.provisional()
    assert vector is not None
    commit = state.commit
    own = Contribution(
        node,
        number,
        commit.own,
        work.tokens,
        sum(work.records.values()),
        work.loss,
        1.0,
        1.0,
        1.0,
        1.0,
        commit.digest,
        commit.ledger,
        {},
        state.trainer.stream.progress(),
    )
    mean = vector if other is None else (vector + other) / 2
    state.average_into({node: own}, mean, 1.0)
    state.save()


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(config: WorkerConfig, tmp_path: Path) -> None:
    straight = _begun(dataclasses.replace(config, run_id="a" * 16))
    for number in range(3):
        _round(straight, number)

    broken = dataclasses.replace(config, run_id="b" * 16)
    first = _begun(broken)
    _round(first, 0)
    _round(first, 1)
    first.trainer.train_until(time.time() + 60, 0.5, _steps(4))  # the power cut comes before the averaging
    second = _begun(broken)
    assert second.commit.round == 1
    assert second.commit.own == first.commit.own
    _round(second, 2)

    assert second.commit.digest == straight.commit.digest
    assert second.commit.own == straight.commit.own
    assert second.commit.progress == straight.commit.progress
    assert torch.equal(second.commit.outer, straight.commit.outer)
    for name, moment in second.trainer.optimizer.state().items():
        assert torch.equal(moment, straight.trainer.optimizer.state()[name])


def test_a_round_that_is_over_already_trains_nothing(config: WorkerConfig) -> None:
    state = _begun(config)
    work = state.trainer.train_until(time.time() - 1, 0.0, lambda: False)
    assert (work.tokens, work.records, work.loss) == (0, {}, None)


def test_a_round_ends_in_time(config: WorkerConfig) -> None:
    state = _begun(config)
    ends = time.time() + 1.0
    work = state.trainer.train_until(ends, 0.0, lambda: False)
    assert work.tokens > 0
    assert abs(time.time() - ends) < 0.2


def test_uncommitted_work_is_forgotten_within_the_process_too(config: WorkerConfig) -> None:
    state = _begun(config)
    read = state.trainer.stream.progress()
    digest = state.commit.digest
    state.trainer.train_until(time.time() + 60, 0.0, _steps(5))
    state.roll_back()
    assert (state.trainer.stream.progress(), state.commit.digest, state.trainer.optimizer.step) == (
        read,
        digest,
        0,
    )
    assert torch.equal(state.trainer.weights.values, state.commit.weights)


@pytest.mark.parametrize("damage", ["weights.safetensors", "optimizer.safetensors", "state.json", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    config: WorkerConfig, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = _begun(config)
    _round(state, 0)
    before = state.commit
    _round(state, 1)
    newest = config.run_dir / "checkpoints" / "round-000001"
    if damage == "missing":
        (newest / "weights.safetensors").unlink()
    else:
        path = newest / damage
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x40
        path.write_bytes(content)
    again = _begun(config)
    assert again.commit.round == 0
    assert again.commit.digest == before.digest
    assert str(newest) in capsys.readouterr().err


def test_only_the_newest_checkpoints_are_kept(config: WorkerConfig) -> None:
    state = _begun(config)
    for number in range(4):
        _round(state, number)
    names = sorted(path.name for path in (config.run_dir / "checkpoints").iterdir())
    assert names == ["round-000002", "round-000003"]


def test_a_checkpoint_of_another_run_is_not_used(config: WorkerConfig) -> None:
    state = _begun(config)
    _round(state, 0)
    path = config.run_dir / "checkpoints" / "round-000000" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "run_id": "f" * 16}))
    again = _begun(config)
    assert again.commit.round == -1


def test_a_peers_state_is_taken_over_and_own_work_stays(configs: list[WorkerConfig]) -> None:
    config, other = configs
    peer = _begun(other)
    state = _begun(config)
    for number in range(3):
        _round(peer, number, node="n1")
    _round(state, 0)
    own, step = state.commit.own, state.trainer.optimizer.step
    metadata, tensors = peer.shared()
    state.adopt("n1", (metadata, list(tensors)))
    assert (state.commit.round, state.commit.digest) == (2, peer.commit.digest)
    assert torch.equal(state.commit.outer, peer.commit.outer)
    assert (state.commit.own, state.trainer.optimizer.step) == (own, step)
    # What was read for these weights is what counts, and the others have this node's shard until it is back.
    assert state.trainer.stream.progress() == peer.commit.progress
    assert set(peer.commit.progress) >= {("code", "n1"), ("natural", "n1")}
    assert state.trainer.stream.empty
    assert state.commit.ledger == {"n0": own, "n1": peer.commit.own}


def test_a_node_whose_disk_is_empty_learns_its_own_work_from_the_others(config: WorkerConfig) -> None:
    state = _begun(config)
    weights, outer = state.commit.weights, state.commit.outer
    metadata = {
        "protocol": PROTOCOL,
        "round": 4,
        "finished": False,
        "ledger": {"n0": [900, 9, 3]},
    } | NO_READING
    state.adopt("n1", (metadata, [weights, outer]))
    assert state.commit.own == Entry(900, 9, 3)


def test_a_leader_that_went_back_takes_its_followers_with_it(config: WorkerConfig) -> None:
    state = _begun(config)
    _round(state, 0)
    own, read = state.commit.own, state.trainer.stream.progress()
    metadata, tensors = state.shared()
    kept = (metadata, [tensor.clone() for tensor in tensors])
    _round(state, 1)
    state.adopt("n1", kept)
    assert (state.commit.round, state.commit.own, state.trainer.stream.progress()) == (0, own, read)


def _bad_states() -> list[tuple[str, Any]]:
    good = {"protocol": PROTOCOL, "round": 1, "finished": False, "ledger": {}} | NO_READING
    return [
        ("metadata", ([1], None)),
        ("field", ({key: good[key] for key in ("protocol", "round", "finished", "progress", "group")}, None)),
        ("protocol version", ({**good, "protocol": 1}, None)),
        ("not acceptable", ({**good, "round": -5}, None)),
        ("unknown field", ({**good, "more": 1}, None)),
        ("ledger", ({**good, "ledger": {"n0": [1, 2]}}, None)),
        ("another model", (good, lambda tensor: tensor[:-1])),
        ("another model", (good, lambda tensor: tensor.double())),
        ("reading progress", ({**good, "progress": {"natural": 5}}, None)),
        ("members of an averaging", ({**good, "group": {"n1": "fast"}}, None)),
        ("not finite", (good, lambda tensor: tensor * float("nan"))),
    ]


@pytest.mark.parametrize(("message", "state"), _bad_states())
def test_what_is_not_an_acceptable_state_changes_nothing(
    config: WorkerConfig, message: str, state: Any
) -> None:
    node = _begun(config)
    before = node.commit
    metadata, change = state
    weights = before.weights if change is None else change(before.weights)
    with pytest.raises(PeerError, match=message):
        node.adopt("n1", (metadata, [weights, before.outer]))
    assert node.commit is before


def test_members_with_different_bases_take_the_plain_mean(config: WorkerConfig) -> None:
    """The outer step needs one common base; without it all fall back to the mean, and are equal again."""
    state = _begun(config)
    mean = state.commit.weights * 0.5
    commit = state.commit
    contributions = {
        node: Contribution(node, 0, Entry(), 10, 1, 1.0, 1.0, 1.0, 1.0, 1.0, base, {}, {}, {})
        for node, base in (("n0", commit.digest), ("n1", "e" * 64))
    }
    state.average_into(contributions, mean, 1.0)
    assert torch.equal(state.commit.weights, mean)
    assert not state.commit.outer.any()


def _work(state: NodeState, number: int, node: str, *, steps: int = 10) -> Contribution:
    """What a node brings after some steps."""
    mine = Uncommitted(node, state)
    mine.add(state.trainer.train_until(time.time() + 60, state.progress_after(0), _steps(steps)))
    return mine.contribution(number, 1.0)


def test_a_pair_commits_both_works_and_the_anchor_stays(configs: list[WorkerConfig]) -> None:
    one, other = (_begun(config) for config in configs)
    group = {node: _work(state, 0, node) for node, state in (("n0", one), ("n1", other))}
    mean = (one.trainer.weights.values + other.trainer.weights.values) / 2
    anchor = one.anchor
    one.average_pair(group, mean)
    other.average_pair(group, mean)
    for state in (one, other):
        assert state.commit.total_tokens == sum(member.tokens for member in group.values())
        assert set(state.commit.progress) >= {("natural", "n0"), ("natural", "n1")}
        assert torch.equal(state.trainer.weights.values, mean)
        assert state.anchor.digest == anchor.digest
        assert state.shared()[0]["round"] == -1, "peers download what all have averaged"
    assert one.commit.own.tokens == group["n0"].tokens
    again = _work(one, 1, "n0")
    assert again.base == anchor.digest
    assert again.before == one.commit.own
    assert again.ledger["n1"].tokens == group["n1"].tokens


def test_dropped_work_leaves_what_a_pair_committed(config: WorkerConfig) -> None:
    state = _begun(config)
    own = _work(state, 0, "n0")
    mean = state.trainer.weights.values.clone()
    state.average_pair({"n0": own}, mean)
    committed, read = state.commit, state.trainer.stream.progress()
    state.trainer.train_until(time.time() + 60, 0.0, _steps(5))
    state.drop_work()
    assert state.commit is committed
    assert torch.equal(state.trainer.weights.values, mean)
    assert state.trainer.stream.progress() == read
    assert not state.trainer.stream.empty
    state.roll_back()
    assert state.commit.round == -1


def test_whoever_stands_by_reads_nothing(config: WorkerConfig) -> None:
    state = _begun(config)
    state.stand_by("others have it")
    assert state.trainer.stream.empty
    assert "others have it" in state.supply.idle


def test_checkpoints_are_written_every_so_many_averagings_of_all_and_at_the_end(
    config: WorkerConfig,
) -> None:
    training = dataclasses.replace(config.training, checkpoint_rounds=2)
    state = _begun(dataclasses.replace(config, training=training))
    written = []
    for number in range(4):
        own = _work(state, number, "n0", steps=2)
        state.average_into({"n0": own}, state.trainer.weights.values.clone(), 1.0)
        state.save_if_due()
        written.append({path.name for path in config.run_dir.glob("checkpoints/round-*")})
    assert [max(names, default=None) for names in written] == [
        None, "round-000001", "round-000001", "round-000003",
    ]  # fmt: skip
    own = _work(state, 4, "n0", steps=2)
    state.average_into({"n0": own}, state.trainer.weights.values.clone(), 1.0)
    state.roll_back()
    assert state.commit.round == 4, "what all averaged is kept in memory until it is written"
    state.save_if_due(stopping=True)
    assert (config.run_dir / "checkpoints" / "round-000004").is_dir()


def test_weights_that_are_not_finite_are_noticed(config: WorkerConfig) -> None:
    state = _begun(config)
    state.trainer.weights.values[7] = float("inf")
    assert state.provisional() is None
