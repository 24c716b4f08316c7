"""The runs that are compared: a fleet of unequal nodes, and what single nodes make of the same data."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.fleet.identity import new_identity
from tailtrain.planning.choices import declared_choices
from tailtrain.planning.node_config import NodeLimits, Peer, worker_document
from tailtrain.planning.settings import parse_settings
from tests.bench.quality.processes import WORKER, Node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.bench.quality.data import Shared

CORES = {"large": 8.0, "middle": 4.0, "small": 2.0, "tiny": 2.0}
"""As inventories declare them: 2 is an eighth of all, so that processors are as unequal as data."""

_MACHINE_PART = 0.85  # the rest is for hivemind's processes at the same moment, and for this program
_START_SECONDS = 300.0
_MEMORY = 2 << 30
_PORT = 45_001


@dataclass(frozen=True)
class Job:
    """What is trained, in the words of group data; what is not said is the product's default.

    Attributes:
        model: sizes.
        training: of the loop, without the seed and the target.
        target_tokens: of the fleet.
        validation_bytes: of held-out text, by domain.
    """

    model: Mapping[str, int]
    training: Mapping[str, float]
    target_tokens: int
    validation_bytes: int


@dataclass(frozen=True)
class Trained:
    """What came of a run.

    Attributes:
        losses: on held-out text, in nats per byte, by domain.
        tokens: that were trained.
        seconds: from the beginning of the first round to the end of the last.
        speeds: of each node while it trained, in tokens per second.
        rounds: how many there were.
    """

    losses: Mapping[str, float]
    tokens: int
    seconds: float
    speeds: Mapping[str, float]
    rounds: int


def fleet(job: Job, data: Shared, seed: int, folder: Path) -> Trained:
    """The nodes together: unequal by the processor time that each may use."""
    nodes = _nodes(job, data, seed, folder, list(CORES))
    machine = len(os.sched_getaffinity(0)) * _MACHINE_PART
    with ExitStack() as stack:
        processes = [stack.enter_context(node.training()) for node in nodes]
        # Importing torch with a tenth of a processor takes a minute, which nobody wants to wait for.
        nodes[0].until("training", "averaging", process=processes[0], seconds=_START_SECONDS)
        for node in nodes:
            node.limit(machine * CORES[node.name] / sum(CORES.values()))
        for node, process in zip(nodes, processes, strict=True):
            node.until("finished", process=process, seconds=_longest(job))
    return _trained(nodes)


def alone(job: Job, data: Shared, seed: int, folder: Path, *, node: str, tokens: int) -> Trained:
    """One node with nobody else, with as much processor time as it wants: tokens are what is compared.

    It trains as one machine does, without an outer step: that belongs to averaging.
    """
    training = {**job.training, "outer_learning_rate": 1.0, "outer_momentum": 0.0}
    single = Job(job.model, training, tokens, job.validation_bytes)
    nodes = _nodes(single, data, seed, folder, [node])
    with nodes[0].training() as process:
        nodes[0].until("finished", process=process, seconds=_longest(job))
    return _trained(nodes)


def _nodes(job: Job, data: Shared, seed: int, folder: Path, names: list[str]) -> list[Node]:
    """Folders and configurations as a deploy makes them, on loopback addresses of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    settings = parse_settings(
        {
            "datasets": {dataset.domain: dataset.file for dataset in data.datasets},
            "storage_backend": "local",
            "coordination_protocol": "decentralized",
            "resource_allocation": "declared_cores",
            "load_balancing": "static",
            "model": job.model,
            "training": {**job.training, "seed": seed, "target_tokens": job.target_tokens},
            "validation_bytes_per_domain": job.validation_bytes,
            "worker_port": _PORT,
        }
    )
    identities = [new_identity() for _ in names]
    block = f"127.{os.getpid() % 200 + 20}.{int(hashlib.sha256(str(folder).encode()).hexdigest()[:2], 16)}"
    peers = [
        Peer(name, "compute" if at else "primary", f"{block}.{at + 1}", _PORT, identity)
        for at, (name, (_, identity)) in enumerate(zip(names, identities, strict=True))
    ]
    found = []
    for peer, (key, _) in zip(peers, identities, strict=True):
        place = folder / peer.node
        place.mkdir(parents=True)
        (place / "identity.key").write_bytes(key)
        for name in ("chunks", "manifests"):
            (place / name).symlink_to(data.folder.resolve() / name)
        document: dict[str, Any] = worker_document(
            run_id=hashlib.sha256(f"{folder} {seed}".encode()).hexdigest()[:16],
            me=peer,
            peers=peers,
            quorum=len(peers),
            limits=NodeLimits(1, 1.0, 100, _MEMORY, "cpu", 0),
            settings=settings,
            datasets=data.datasets,
            placements=data.placements,
            spans=data.spans,
            rclone=str(WORKER / "rclone"),
            storage=None,
            choices=declared_choices(settings),
            code="0" * 16,
        )
        found.append(Node(place, {**document, "state_dir": str(place)}))
    return found


def _trained(nodes: list[Node]) -> Trained:
    rounds = nodes[0].rounds
    members = [member for entry in rounds for member in entry["group"]]
    work = {node.name: [member for member in members if member["node"] == node.name] for node in nodes}
    return Trained(
        losses=nodes[0].losses(nodes),
        tokens=int(rounds[-1]["total_tokens"]),
        seconds=rounds[-1]["ended_unix"] - rounds[0]["started_unix"],
        speeds={
            name: sum(each["tokens"] for each in those) / sum(each["train_seconds"] for each in those)
            for name, those in work.items()
        },
        rounds=len(rounds),
    )


def _longest(job: Job) -> float:
    """More seconds than a run may take on any machine that is worth measuring on."""
    return 300.0 + job.target_tokens / 2_000
