"""The configuration of each node's worker: what its files say, before a template makes text of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.spec import HEALTH_WEIGHTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.choices import Choices
    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.placement import Placement
    from tailtrain.planning.plan import Material
    from tailtrain.planning.settings import Settings
    from tailtrain.planning.storage_plan import PlannedStorage


@dataclass(frozen=True)
class Peer:
    """A node as the others reach it."""

    node: str
    role: str
    address: str
    port: int
    peer_id: str

    @cached_property
    def document(self) -> Encoded:
        """What the others' configurations say of it; made once, for it stands in all of them."""
        return Encoded(asdict(self))


class Encoded(dict[str, object]):
    """A JSON object that is written many times; nobody may change it."""

    @cached_property
    def text(self) -> str:
        """The object as JSON, in ASCII."""
        return json.dumps(self)


class OtherPeers(list[Encoded]):
    """The nodes that one is told of, as a list in JSON, one of them a line; nobody may change it."""

    @cached_property
    def text(self) -> str:
        """The list as JSON, in ASCII."""
        entries = ",\n      ".join([peer.text for peer in self])
        return f"[\n      {entries}\n    ]" if entries else "[]"


class Spans(list[list[int]]):
    """What a node owns of a data set, by the places of chunks as they are shared out; nobody may change it.

    Each is [i, r, j, s]: from row r of training chunk i up to, and without, row s of training chunk j.
    """


class FleetSpans(dict[str, Spans]):
    """What each node owns of a data set; nobody may change it."""

    @cached_property
    def _entries(self) -> dict[str, str]:
        """Each node's as an entry of a JSON object; made once, for it stands in all configurations."""
        return {node: f"{json.dumps(node)}: {json.dumps(spans)}" for node, spans in self.items()}

    def without(self, node: str) -> Encoded:
        """What the others own, as the configuration of a node says it: one of them a line."""
        others = Encoded({name: spans for name, spans in self.items() if name != node})
        entries = ",\n        ".join(entry for name, entry in self._entries.items() if name != node)
        others.text = f"{{\n        {entries}\n      }}" if entries else "{}"
        return others


def spans_of(dataset: PlannedDataset, placement: Placement) -> FleetSpans:
    """What each node owns of a data set, as short as it can be said."""
    order = {chunk.sha256: index for index, chunk in enumerate(dataset.shared)}
    found = FleetSpans()
    for node, ranges in placement.items():
        spans = Spans()
        for sha256, start, stop in ranges:
            index = order[sha256]
            last = spans[-1] if spans else None
            goes_on = last and (
                last[2:] == [index, start]
                or (start == 0 and last[2:] == [index - 1, dataset.shared[index - 1].rows])
            )
            if last and goes_on:
                last[2:] = [index, stop]
            else:
                spans.append([index, start, index, stop])
        found[node] = spans
    return found


@dataclass(frozen=True)
class NodeLimits:
    """What a worker may use: threads, the cores behind them, memory in bytes, device, nice value."""

    threads: int
    usable_cores: float
    cpu_quota_percent: int
    memory_bytes: int
    device: str
    nice: int


def worker_document(
    *,
    run_id: str,
    me: Peer,
    peers: Sequence[Peer],
    quorum: int,
    limits: NodeLimits,
    settings: Settings,
    datasets: Sequence[PlannedDataset],
    placements: Mapping[str, Placement],
    spans: Mapping[str, FleetSpans],
    rclone: str,
    storage: PlannedStorage | None,
    choices: Choices,
    code: str,
) -> dict[str, object]:
    """The document that `worker.json` holds for one node.

    Args:
        run_id: of the run at hand.
        me: the node.
        peers: all nodes, it included.
        quorum: how many it takes.
        limits: what the worker may use.
        settings: what to train.
        datasets: what to train on.
        placements: by domain, the ranges that each node owns.
        spans: the same in few words, for all nodes; none where every node has all data.
        rclone: its path there.
        storage: the backend; None where there is none.
        choices: what the plan decided about rounds and averagings.
        code: the id of the worker's code.
    """
    loop = asdict(settings.loop)
    seed = loop.pop("seed")
    loop["round_seconds"] = choices.round_seconds
    loop["averaging_timeout_seconds"] = choices.averaging_timeout_seconds
    return {
        "run_id": run_id,
        "node": me.node,
        "role": me.role,
        "seed": seed,
        "device": limits.device,
        "threads": limits.threads,
        "usable_cores": limits.usable_cores,
        "state_dir": layout.STATE_DIR,
        "model": asdict(settings.model),
        "training": loop
        | {
            "fault_tolerance": settings.training.fault_tolerance,
            "checkpoint_rounds": settings.engine.checkpoint_rounds,
            "steps_per_round": _steps(settings, me.node, placements),
            "health_weighted": settings.training.load_balancing == HEALTH_WEIGHTED,
        },
        "coordination": {
            "protocol": settings.training.coordination_protocol.value,
            "address": me.address,
            "port": me.port,
            "quorum": quorum,
            "all_each": choices.all_each,
            "compression": choices.compression,
            "reducers": dict(choices.reducers),
            "gossip": layout.SERF_CONFIG if settings.gossips else None,
            "made_of": {
                "code": code,
                "data": _digest([dataset.manifest_id for dataset in datasets]),
                "plan": _digest(settings.as_json()),
            },
            "peers": OtherPeers(peer.document for peer in peers if peer.node != me.node),
        },
        "data": [
            {
                "domain": dataset.domain,
                "manifest": dataset.manifest_id,
                "ranges": [list(piece) for piece in placements[dataset.domain].get(me.node, ())],
                "others": spans.get(dataset.domain, FleetSpans()).without(me.node),
                "heldout": [chunk.sha256 for chunk in dataset.heldout],
            }
            for dataset in datasets
        ],
        "storage": {
            "chunk_port": settings.chunk_port,
            "rclone": rclone,
            "remote": {
                "path": storage.path,
                "config": layout.STORAGE_CONFIG,
                "flags": list(storage.flags),
            }
            if storage
            else None,
        },
        "validation": {"bytes_per_domain": settings.validation_bytes_per_domain},
    }


def _steps(settings: Settings, node: str, placements: Mapping[str, Placement]) -> int:
    """Steps of a node in each round of a deterministic run, by its share of the records; 0 in other runs."""
    if not settings.engine.deterministic:
        return 0
    rows: dict[str, int] = {node: 0}
    for placement in placements.values():
        for name, ranges in placement.items():
            rows[name] = rows.get(name, 0) + sum(stop - start for _, start, stop in ranges)
    most = max(rows.values())
    return max(1, round(settings.engine.steps_per_round * rows[node] / most)) if most else 1


def _digest(value: object) -> str:
    """16 digits that differ where the value does."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


CHUNK_SERVER_MEMORY = 256 << 20
"""Bytes; measured with 2,000 chunks it takes a third of that."""


def unit_values(
    material: Material, lock: str, limits: NodeLimits, settings: Settings, me: Peer, peers: Sequence[Peer]
) -> dict[str, object]:
    """What the templates of the units may say.

    Args:
        material: ids of code and environments.
        lock: the name of the environment's lock.
        limits: what the worker may use.
        settings: the ports.
        me: the node.
        peers: those that may fetch its chunks.
    """
    whole = settings.data_parallel
    return {
        "account": layout.ACCOUNT,
        "code": layout.code(material.code_id),
        "config": layout.CONFIG,
        "worker_module": "tailtrain.worker" if whole else "tailtrain.worker.sharded",
        "worker_command": "train" if whole else "run",
        "worker_config": layout.CONFIG if whole else layout.SHARDED_CONFIG,
        "divided": not whole,
        "serf_config": layout.SERF_CONFIG,
        "serf_digest": "",
        "environment": layout.environment(material.locks[lock]),
        "state_dir": layout.STATE_DIR,
        "chunk_dir": layout.CHUNK_DIR,
        "chunk_port": settings.chunk_port,
        "chunk_memory_bytes": CHUNK_SERVER_MEMORY,
        "address": me.address,
        "peers": [peer.address for peer in peers],
        "threads": limits.threads,
        "cpu_quota_percent": limits.cpu_quota_percent,
        "memory_bytes": limits.memory_bytes,
        "device": limits.device,
        "nice": limits.nice,
    }
