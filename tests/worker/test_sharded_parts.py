"""What the sharded engine is made of, each alone: pieces, files, batches, credit, rendezvous, settings."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.elastic.rendezvous import RendezvousParameters

from tailtrain.errors import WorkerError
from tailtrain.worker.config import ModelConfig
from tailtrain.worker.model import build_model
from tailtrain.worker.sharded.agent import make_rendezvous
from tailtrain.worker.sharded.beacon import Beacon
from tailtrain.worker.sharded.checkpoints import Checkpoints, State
from tailtrain.worker.sharded.config import load_sharded
from tailtrain.worker.sharded.files import KINDS
from tailtrain.worker.sharded.hearing import Word, choose_host
from tailtrain.worker.sharded.layout import (
    Piece,
    first_weights,
    stage_pieces,
    take,
    tensor_pieces,
    whole_model,
)
from tailtrain.worker.sharded.ledger import divided
from tailtrain.worker.sharded.network import interface_of, listen_on
from tailtrain.worker.sharded.rendezvous import Chooser
from tailtrain.worker.sharded.transfer import _read, _write
from tailtrain.worker.weights import FlatWeights, weights_sha256
from tests.worker.sharded_fleet import ShardedFleet, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

MakeFleet = Callable[..., Any]
CONFIG = ModelConfig(layers=3, width=16, heads=4, context=8)
WHOLE = whole_model(CONFIG)


def cuts() -> list[list[tuple[Piece, ...]]]:
    """The model on one, two and three stages, and in two and four parts."""
    return [
        [stage_pieces(WHOLE, 3, 0, 3)],
        [stage_pieces(WHOLE, 3, 0, 1), stage_pieces(WHOLE, 3, 1, 3)],
        [stage_pieces(WHOLE, 3, index, index + 1) for index in range(3)],
        [tensor_pieces(WHOLE, part, 2) for part in range(2)],
        [tensor_pieces(WHOLE, part, 4) for part in range(4)],
    ]


@pytest.mark.parametrize("ranks", cuts())
def test_every_value_is_answered_for_by_one_rank(ranks: list[tuple[Piece, ...]]) -> None:
    for name, shape in WHOLE.shapes.items():
        owners = torch.zeros(shape)
        answering = [piece for pieces in ranks for piece in pieces if piece.name == name and not piece.copy]
        for piece in answering:
            for block in piece.blocks:
                owners[block] += 1
        assert bool((owners == 1).all()), name


@pytest.mark.parametrize("ranks", cuts())
def test_first_weights_are_the_same_as_of_the_whole_model(ranks: list[tuple[Piece, ...]]) -> None:
    whole = dict(build_model(CONFIG, 17).named_parameters())
    for pieces in ranks:
        parts = first_weights(CONFIG, 17, pieces)
        assert set(parts) == {piece.name for piece in pieces}
        for piece in pieces:
            assert parts[piece.name].shape == piece.shape
            assert torch.equal(parts[piece.name], take(whole[piece.name].data, piece))


def vectors_of(layout: FlatWeights, pieces: tuple[Piece, ...], sources: dict[str, torch.Tensor]) -> Any:
    return {
        kind: torch.cat(
            [take(layout.views(sources[kind])[piece.name], piece).reshape(-1) for piece in pieces]
        )
        for kind in KINDS
    }


@pytest.mark.parametrize("ranks", cuts())
def test_a_checkpoint_written_in_pieces_is_a_data_parallel_ones_files(
    ranks: list[tuple[Piece, ...]], tmp_path: Path
) -> None:
    layout = FlatWeights(build_model(CONFIG, 17), torch.device("cpu"))
    sources = {kind: torch.randn(layout.values.numel()) for kind in KINDS}
    store = Checkpoints(tmp_path, run_id="r", whole=WHOLE, keep=2)
    files = store.begin(0)
    for pieces in ranks:
        for kind, vector in vectors_of(layout, pieces, sources).items():
            _write(files, kind, pieces, vector)
    hashes, digest = files.finish()
    state = State(0, 10, {"step": 10}, {}, finished=False, committed_unix=1.0, weights_sha256=digest)
    store.publish(state, hashes)

    assert digest == weights_sha256(sources["weights"])
    path = store.weights_file(state)
    assert torch.equal(layout.from_bytes(path.read_bytes()), sources["weights"])
    moments = load_file(path.with_name("optimizer.safetensors"))
    assert all(torch.equal(moments[kind], sources[kind]) for kind in ("first", "second"))

    assert store.newest(pytest.fail) == state
    read = store.open(state)
    for other in cuts():
        for pieces in other:
            for kind, vector in vectors_of(layout, pieces, sources).items():
                assert torch.equal(_read(read, kind, pieces), vector)


def test_the_oldest_checkpoints_go_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, run_id="r", whole=WHOLE, keep=2)
    states = [write_checkpoint(store, number, WHOLE) for number in range(3)]
    (tmp_path / ".round-000009.1").mkdir()  # what a killed rank left
    assert sorted(path.name for path in tmp_path.glob("round-*")) == ["round-000001", "round-000002"]
    path = store.weights_file(states[2])
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    told: list[str] = []
    assert store.newest(told.append) == states[1]
    assert "a checkpoint is damaged" in told[0]
    assert "using the one before" in told[0]
    write_checkpoint(store, 3, WHOLE)
    assert not list(tmp_path.glob(".round-*"))
    assert Checkpoints(tmp_path, run_id="another", whole=WHOLE, keep=2).newest(told.append) is None


@pytest.mark.parametrize(("total", "weights"), [(7, [1.0, 1.0, 1.0]), (15360, [1.0, 2.0, 3.6]), (0, [1.0])])
def test_credit_sums_to_what_was_done(total: int, weights: list[float]) -> None:
    parts = divided(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    assert all(abs(part - total * weight / whole) < 1 for part, weight in zip(parts, weights, strict=True))


ORDER = ("a", "b", "c")


@pytest.mark.parametrize(
    ("own", "words", "host"),
    [
        ("a", {}, "a"),
        ("b", {}, "b"),
        ("b", {"a": None}, "a"),
        ("c", {"b": None}, "b"),
        ("a", {"b": "b", "c": "b"}, "b"),  # one that came back joins what took its place
        ("c", {"b": "a"}, "b"),  # what b thinks of a, which is gone, does not count
        ("c", {"a": "a", "b": "b"}, "a"),
        ("d", {"e": None}, None),
    ],
)
def test_the_first_that_lives_holds_the_rendezvous(
    own: str, words: dict[str, str | None], host: str | None
) -> None:
    said = {node: Word("r", node, held) for node, held in words.items()}
    assert choose_host(ORDER, own, said) == host


def test_who_has_finished_holds_no_rendezvous() -> None:
    said = {"a": Word("r", "a", None, finished=True), "b": Word("r", "b")}
    assert choose_host(ORDER, "c", said) == "b"


def test_supervisors_hear_each_other(make_fleet: MakeFleet) -> None:
    fleet = ShardedFleet(make_fleet(3), (1.0, 1.0, 1.0), steps=1)
    configs = [load_sharded(fleet.write(index)) for index in range(3)]
    run = configs[0].worker.run_id
    first, second, third = (Beacon(config) for config in configs)
    try:
        second.tell("n1")
        assert first.hear() == {"n1": Word(run, "n1", "n1"), "n2": Word(run, "n2")}
        assert third.hear() == {"n0": Word(run, "n0"), "n1": Word(run, "n1", "n1")}
        assert Chooser(third, "n0").choose()[0] == "n1"
        second.tell(None, finished=True)
        assert third.hear()["n1"].finished
        assert Chooser(third, "n0").choose()[0] == "n0"
    finally:
        second.close()
        third.close()
    began = time.monotonic()
    assert first.hear() == {}
    assert time.monotonic() - began < 2
    first.close()


def test_a_beacon_that_cannot_accept_for_a_moment_answers_afterwards(make_fleet: MakeFleet) -> None:
    config = load_sharded(ShardedFleet(make_fleet(2), (1.0, 1.0), steps=1).write(0))
    beacon = Beacon(config)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    asking = socket.socket()
    try:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))  # too many open files
        asking.connect((config.address, config.beacon_port))
        time.sleep(0.5)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        asking.settimeout(5)
        assert json.loads(asking.recv(1024))["node"] == "n0"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        asking.close()
        beacon.close()


def test_an_agent_that_gives_up_locks_nobody_out() -> None:
    port = free_port()
    handlers = [
        make_rendezvous(
            RendezvousParameters(
                "tailtrain", f"127.0.0.1:{port}", "run", 1, 2, local_addr="127.0.0.1", is_host=is_host
            )
        )
        for is_host in (1, 0)
    ]
    assert handlers[1].shutdown()
    assert not any(handler.is_closed() for handler in handlers)
    found = handlers[0].next_rendezvous()
    assert (found.rank, found.world_size) == (0, 1)
    handlers[0].shutdown()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_the_interface_of_an_address_is_found_or_missed_by_name() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("127.5.5.5") == "lo"
    with pytest.raises(WorkerError, match=r"192\.0\.2\.77: no network interface carries"):
        interface_of("192.0.2.77")
    with pytest.raises(WorkerError, match="cannot listen"):
        listen_on("192.0.2.77", 45009)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("strategy", "dataParallel", "expected pipelineParallel or modelParallel"),
        ("min_nodes", 3, "at most 2"),
        ("microbatches", 3, "a divisor of 8"),
        ("rendezvous_order", [], "at least one"),
        ("rendezvous_order", ["n9"], "nodes of the run"),
        ("beacon_port", 45003, "another port"),
        ("checkpoint_steps", 0, "a whole number from 1 up"),
        ("extra", 1, "nobody knows this setting"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    make_fleet: MakeFleet, field: str, value: Any, message: str
) -> None:
    fleet = ShardedFleet(make_fleet(2), (1.0, 1.0), steps=1)
    fleet.common[field] = value
    with pytest.raises(WorkerError, match=message):
        load_sharded(fleet.write(0))


def test_heads_and_data_must_fit_the_strategy(make_fleet: MakeFleet) -> None:
    fleet = ShardedFleet(make_fleet(3), (1.0, 1.0, 1.0), steps=1, strategy="modelParallel")
    with pytest.raises(WorkerError, match="divides the 4 heads"):
        load_sharded(fleet.write(0))
    fleet = ShardedFleet(make_fleet(2), (1.0, 1.0), steps=1)
    path = fleet.write(0)
    chunk = fleet.fleet.configs[0]["data"][0]["ranges"].pop()
    assert chunk
    other = load_sharded(fleet.write(0)).digest
    fleet.fleet.configs[0]["data"][0]["ranges"].append(chunk)
    assert load_sharded(fleet.write(0)).digest != other
    assert json.loads(path.read_bytes())["port"] == 45003
