"""Who takes part: nodes that found each other say what they are and have, and agree on the cut."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch.distributed import PrefixStore, TCPStore

from tailtrain.errors import LostNodeError, PeerError, UnsupportedError
from tailtrain.partition import Stage, cut, part_bytes
from tailtrain.worker.sharded.checkpoints import BEGINNING, State, ledger_from_json, state_to_json
from tailtrain.worker.sharded.disk import has_room
from tailtrain.worker.sharded.layout import Piece, stage_pieces, tensor_pieces
from tailtrain.worker.sharded.network import listen_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.sharded.layout import WholeModel

PROTOCOL = 3
_MEET_SECONDS = 30.0


@dataclass(frozen=True)
class Known:
    """The newest checkpoint that was ever told as committed: its step, and the nodes that wrote it."""

    step: int = 0
    on: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As in the status and in words to others."""
        return {"committed_step": self.step, "committed_on": list(self.on)}


@dataclass(frozen=True)
class Member:
    """A node that takes part.

    Attributes:
        node: its name.
        state: the newest checkpoint that it has.
        known: the newest that it knows of.
        room: whether its disk has room for one more.
    """

    node: str
    state: State
    known: Known
    room: bool = True


@dataclass(frozen=True)
class Share:
    """What one active member does: its layers, its parameters, and its part of each step's work."""

    rank: int
    layers: tuple[int, int]
    pieces: tuple[Piece, ...]
    work: float


def open_store(address: str, port: int, *, serve: bool, timeout: float) -> TCPStore:
    """The store over which the members of one start exchange words; it listens on this address alone.

    Raises:
        WorkerError: this node cannot listen there.
    """
    descriptor = listen_on(address, port).detach() if serve else None
    return TCPStore(
        address,
        port,
        is_master=serve,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=descriptor,
    )


def meet(
    store: TCPStore, config: ShardedConfig, place: int, count: int, held: State | None, known: Known
) -> tuple[Member, ...]:
    """The members, in the order of the configuration.

    Args:
        store: of this start.
        config: this node's configuration.
        place: this node's number among those that met, in no order that matters.
        count: how many met.
        held: the newest checkpoint here.
        known: the newest that this node knows of.

    Raises:
        PeerError: a node works on something else, or two have the same name. It names the node that differs
            from most.
    """
    table = PrefixStore("members", store)
    word = {
        "protocol": PROTOCOL,
        "digest": config.digest,
        "node": config.worker.node,
        "state": state_to_json(held or BEGINNING),
        "room": has_room(config),
        **known.to_json(),
    }
    table.set(str(place), json.dumps(word))
    table.wait([str(other) for other in range(count)], timedelta(seconds=_MEET_SECONDS))
    words = [_read(table.get(str(other))) for other in range(count)]
    kinds = [(said["protocol"], said["digest"]) for said in words]
    common = max(kinds, key=kinds.count)
    for said, kind in zip(words, kinds, strict=True):
        if kind != common:
            raise PeerError(
                "a node has other code, data, settings or nodes than the others",
                host=said["node"],
                found=f"protocol {kind[0]}, digest {kind[1][:12]}",
                expected=f"protocol {common[0]}, digest {common[1][:12]}",
                fix="Deploy again, so that all have the same",
            )
    found = {said["node"]: Member(said["node"], said["held"], said["known"], said["room"]) for said in words}
    order = [node.node for node in config.nodes if node.node in found]
    if len(order) != count:
        names = sorted(said["node"] for said in words)
        raise PeerError("nodes of this run that are not what they should be", found=", ".join(names))
    return tuple(found[name] for name in order)


def _read(content: bytes) -> dict[str, Any]:
    """Check and read another node's word."""
    try:
        raw = json.loads(content)
        state = raw["state"]
        held = State(
            round=int(state["round"]),
            step=int(state["step"]),
            cursor=dict(state["cursor"]),
            ledger=ledger_from_json(state["ledger"]),
            finished=bool(state["finished"]),
            committed_unix=float(state["committed_unix"]),
            weights_sha256=str(state["weights_sha256"]),
        )
        return {
            "protocol": int(raw["protocol"]),
            "digest": str(raw["digest"]),
            "node": str(raw["node"]),
            "held": held,
            "known": known_from_json(raw),
            "room": bool(raw["room"]),
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeerError("a node's word on itself cannot be read", found=repr(error)) from error


def known_from_json(raw: Mapping[str, Any]) -> Known:
    """From a status or a word; nothing is known where it says nothing."""
    return Known(int(raw.get("committed_step", 0)), tuple(str(node) for node in raw.get("committed_on", ())))


def shares(config: ShardedConfig, whole: WholeModel, members: Sequence[Member]) -> dict[str, Share]:
    """What each active member does; a member that is not in it stands by.

    Raises:
        LostNodeError: nodes are missing, in a run that tolerates no loss.
        UnsupportedError: the model fits into the memory of no cut among these members.
    """
    names = [member.node for member in members]
    missing = [node.node for node in config.nodes if node.node not in names]
    if missing and not config.worker.training.fault_tolerance:
        raise LostNodeError(
            "a node is missing and this run tolerates no loss",
            host=", ".join(missing),
            fix="Bring it back and resume: the run goes on from its newest checkpoint",
        )
    layers = config.worker.model.layers
    if config.strategy == "modelParallel":
        return _parts(config, whole, names)
    stages = cut(
        layers,
        config.candidates(names),
        config.costs,
        microbatches=config.microbatches,
        keep=config.worker.primary,
    )
    return {stage.node: _share(whole, layers, names, stage) for stage in stages}


def _share(whole: WholeModel, layers: int, names: Sequence[str], stage: Stage) -> Share:
    pieces = stage_pieces(whole, layers, stage.start, stage.stop)
    return Share(names.index(stage.node), (stage.start, stage.stop), pieces, stage.work)


def _parts(config: ShardedConfig, whole: WholeModel, names: Sequence[str]) -> dict[str, Share]:
    """Equal parts of every layer for as many members as divide the heads, the primary among them."""
    heads = config.worker.model.heads
    parts = max(count for count in range(1, len(names) + 1) if heads % count == 0)
    layers = (0, config.worker.model.layers)
    active = sorted(names, key=lambda name: name != config.worker.primary)[:parts]
    result = {
        name: Share(names.index(name), layers, tensor_pieces(whole, part, parts), 1.0)
        for part, name in enumerate(sorted(active, key=names.index))
    }
    costs, memory = config.costs, {node.node: node.memory_bytes for node in config.nodes}
    per_rank = max(sum(piece.numel for piece in share.pieces) for share in result.values())
    needed = part_bytes(costs, layers[1], per_rank / whole.parameters)
    for name in result:
        if needed > memory[name]:
            raise UnsupportedError(
                "its memory cannot hold its part of the model",
                host=name,
                field="ram_gb",
                found=f"{memory[name] >> 20} MiB",
                expected=f"{needed >> 20} MiB",
            )
    return result


def writers(
    config: ShardedConfig, division: Mapping[str, Share], members: Sequence[Member]
) -> tuple[int, ...]:
    """The ranks that write checkpoints: the primary, where it is active, and the first others, with room.

    Raises:
        UnsupportedError: none has room.
    """
    able = [member.node for member in members if member.room and member.node in division]
    if not able:
        raise UnsupportedError(
            "no node that is here has room for a checkpoint",
            host=", ".join(member.node for member in members),
            expected=f"{config.checkpoint_bytes >> 20} MiB",
            fix="Free room on one of them",
        )
    order = sorted(able, key=lambda node: (node != config.worker.primary, division[node].rank))
    return tuple(division[node].rank for node in order[: config.checkpoint_nodes])


def holders(members: Sequence[Member], state: State) -> list[int]:
    """The ranks that have the checkpoint of this state; none of the state before the first."""
    return [rank for rank, member in enumerate(members) if member.state.same_as(state) and state != BEGINNING]


def newest(config: ShardedConfig, members: Sequence[Member]) -> tuple[State, Known]:
    """The furthest state that a member has, and who has what is newest of all that was committed.

    Of two versions of the same step it is the first member's.

    Raises:
        UnsupportedError: a newer one was committed, and a node that has it is away. One that is gone for good
            is waited for until the fleet is deployed without it.
    """
    state = max((member.state for member in members), key=lambda state: state.step)
    step = max([state.step, *(member.known.step for member in members)])
    here = {member.node for member in members}
    away = [node.node for node in config.nodes if node.node in _on(members, step) - here]
    if step > state.step and away:
        names = ", ".join(away)
        raise UnsupportedError(
            f"the checkpoint of step {step} is on {names}, which {'are' if away[1:] else 'is'} away",
            found=f"step {state.step} is the newest here",
            fix="Bring one of them back, or take those that are gone for good out of inventory.py and deploy",
        )
    return state, Known(state.step, tuple(sorted(_on(members, state.step))))


def _on(members: Sequence[Member], step: int) -> set[str]:
    """The nodes that are known to have the checkpoint of this step."""
    told = {node for member in members if member.known.step == step for node in member.known.on}
    return told | {member.node for member in members if member.state.step == step > 0}
