"""One start of this node's rank: meet the others, agree on the cut, load, train; torchrun starts it anew."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore

from tailtrain.errors import LostNodeError, UnsupportedError
from tailtrain.worker.sharded.checkpoints import Checkpoints, State, state_to_json
from tailtrain.worker.sharded.layout import whole_model
from tailtrain.worker.sharded.ledger import told_of
from tailtrain.worker.sharded.members import (
    Known,
    Member,
    Share,
    holders,
    known_from_json,
    meet,
    newest,
    open_store,
    shares,
    writers,
)
from tailtrain.worker.sharded.source import ChunkSource
from tailtrain.worker.sharded.status import ShardedStatus
from tailtrain.worker.sharded.training import ShardedModel, Team, Training
from tailtrain.worker.sharded.transfer import scatter
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.sharded.source import BatchSource

_SOURCE = re.compile(r"^\[\S*:\d+\] ")
_STORE_SECONDS = 30.0
_POLL_SECONDS = 0.5
_FAREWELL_SECONDS = 10.0
_UNFIT_SECONDS = 30.0


@dataclass(frozen=True)
class Place:
    """What torchrun told this process: its number among those that met, and where their store is."""

    number: int
    count: int
    address: str
    port: int


def place_from_environment() -> Place:
    """As torchrun puts it into a worker's environment."""
    get = os.environ
    return Place(int(get["RANK"]), int(get["WORLD_SIZE"]), get["MASTER_ADDR"], int(get["MASTER_PORT"]))


def run_rank(config: ShardedConfig, place: Place) -> None:
    """Take part from one meeting of the nodes until the run is finished.

    Raises:
        WorkerError: this node cannot take part, whoever the others are.
        LostNodeError: a node was lost, in a run that tolerates none.
        RuntimeError: from torch, when a peer is lost; the caller meets the others again.
    """
    worker = config.worker
    torch.set_num_threads(worker.threads)
    status = ShardedStatus(config)
    whole = whole_model(worker.model)
    checkpoints = Checkpoints(
        worker.run_dir / "checkpoints",
        run_id=worker.run_id,
        whole=whole,
        keep=worker.training.keep_checkpoints,
    )
    held = checkpoints.newest(log)
    source = ChunkSource(worker)
    store = open_store(place.address, place.port, serve=place.number == 0, timeout=_STORE_SECONDS)
    known = known_from_json(status.read())
    members = meet(store, config, place.number, place.count, held, known)
    names = [member.node for member in members]
    try:
        state, known = newest(config, members)
        division = shares(config, whole, members)
        writing = writers(config, division, members)
    except UnsupportedError as error:
        status.set("paused", f"{error}; waits for more nodes", members=names)
        time.sleep(_UNFIT_SECONDS)
        raise
    try:
        taking = (state, known, writing)
        _take_part(config, members, division, taking, (store, checkpoints, source, status))
    except RuntimeError as error:
        if worker.training.fault_tolerance:
            raise
        raise LostNodeError(
            "a node was lost and this run tolerates no loss",
            host=worker.node,
            found=plain(error),
            fix="Bring it back and resume: the run goes on from its newest checkpoint",
        ) from error
    try:
        _see_off(store, place.count)
    except RuntimeError:
        if place.number == 0:
            raise  # the store is here


def _take_part(
    config: ShardedConfig,
    members: Sequence[Member],
    division: dict[str, Share],
    start: tuple[State, Known, tuple[int, ...]],
    tools: tuple[TCPStore, Checkpoints, BatchSource, ShardedStatus],
) -> None:
    """Train, or stand by, until the run is finished."""
    store, checkpoints, source, status = tools
    (state, known, writing), node = start, config.worker.node
    names = [member.node for member in members]
    patience = timedelta(seconds=config.collective_timeout_seconds)
    dist.init_process_group(
        "gloo",
        store=PrefixStore("world", store),
        rank=names.index(node),
        world_size=len(names),
        timeout=patience,
    )
    # A group does not take over the world's time-out: its own would be half an hour.
    group = dist.new_group([share.rank for share in division.values()], timeout=patience)
    team = Team(tuple(names), division, writing, group)
    having = holders(members, state)
    holder = having[0] if having else 0
    status.set(
        "training" if node in division else "waiting",
        f"{len(names)} nodes from step {state.step}: {_in_words(division, names)}",
        round=state.round,
        members=names,
        cut=team.cut,
        layers=list(division[node].layers) if node in division else None,
        **told_of(state, node),
        **known.to_json(),
    )
    # Of a run that others finished, only those have the end that brought it.
    with_end = having if state.finished else team.writers
    if state.finished:
        end = state
    elif node in division:
        training = Training(config, _model(config, team), team, source, checkpoints, status)
        training.load(state, holder, having, known)
        training.run()
        end = training.state
        store.set("finished", json.dumps(state_to_json(end)))
    else:
        if having:
            files = checkpoints.open(state) if names.index(node) in having else None
            scatter(team.layouts, {}, holder, files, having)
        end = _stand_by(store, state)
    primary = config.worker.primary
    there = primary in names and names.index(primary) in with_end
    lacks = config.worker.is_primary and not there
    status.set(
        "waiting" if lacks else "finished",
        "the run is finished; takes its last checkpoint" if lacks else "the run is finished",
        primary_has_final=there,
        round=end.round,
        step=end.step,
        **told_of(end, node),
    )
    store.add("done", 1)


def _model(config: ShardedConfig, team: Team) -> ShardedModel:
    share, worker = team.shares[config.worker.node], config.worker
    # Each takes seconds to import on a small host, and a recovery waits for it.
    if config.strategy == "modelParallel":
        from tailtrain.worker.sharded.tensor import TensorModel  # noqa: PLC0415

        return TensorModel(worker.model, share.pieces, microbatches=config.microbatches, group=team.group)
    from tailtrain.worker.sharded.pipeline import PipelineModel  # noqa: PLC0415

    return PipelineModel(
        worker.model,
        share.pieces,
        layers=share.layers,
        microbatches=config.microbatches,
        microbatch_size=worker.training.batch_size // config.microbatches,
        group=team.group,
    )


def _stand_by(store: TCPStore, state: State) -> State:
    """Wait until the others have finished; RuntimeError when the store is gone, as for all others."""
    while not store.check(["finished"]):
        time.sleep(_POLL_SECONDS)
    raw = json.loads(store.get("finished"))
    return State(
        round=int(raw["round"]),
        step=int(raw["step"]),
        cursor={},
        ledger=state.ledger,
        finished=True,
        committed_unix=float(raw["committed_unix"]),
        weights_sha256=str(raw["weights_sha256"]),
    )


def _see_off(store: TCPStore, count: int) -> None:
    """Stay until all have finished.

    The store ends with its process, and others may still need it; and a process that ends while another is in
    the last barrier would look lost to it. Whoever finds the store gone knows that all have finished.
    """
    ends = time.monotonic() + _FAREWELL_SECONDS
    while store.add("done", 0) < count and time.monotonic() < ends:
        time.sleep(_POLL_SECONDS / 10)


def _in_words(division: dict[str, Share], names: Sequence[str]) -> str:
    active = [f"{node} layers {share.layers[0]}-{share.layers[1] - 1}" for node, share in division.items()]
    idle = [f"{name} stands by" for name in names if name not in division]
    return ", ".join(active + idle)


def plain(error: Exception) -> str:
    """What torch said of a lost peer, without its source files and advice."""
    line = str(error).strip().partition("\n")[0]
    return _SOURCE.sub("", line).partition(". ")[0]
