"""The plan: what will happen to each host and why, made purely from what is declared and observed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailtrain.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
    from tailtrain.planning.division.planned import Division
    from tailtrain.planning.node_config import NodeLimits
    from tailtrain.planning.observed import LockHolder
    from tailtrain.planning.parts import (
        Action,
        ChunkMove,
        ChunkSource,
        Drift,
        FileChange,
        Phase,
        Preflight,
        Removal,
    )
    from tailtrain.planning.placement import Placement
    from tailtrain.planning.receipt import Login, Receipt
    from tailtrain.planning.serf_plan import SerfPlan
    from tailtrain.planning.settings import Settings
    from tailtrain.planning.sourcing import Delivery
    from tailtrain.planning.storage_plan import PlannedStorage
    from tailtrain.planning.topology.planned import PlannedTopology
    from tailtrain.spec import NetworkNode


# What the weightiest action of a host means for it, the weightiest first.
_VERDICTS = (
    ("account", "first install"),
    ("restart", "restart the worker"),
    ("start", "start the worker"),
    *((key, "update") for key in ("mask", "packages", "environment", "code", "identity", "credentials")),
    *((key, "update") for key in ("gossip", "files", "serve", "agent", "retire", "chunks", "copies")),
    ("upload", "upload"),
    *((key, "validate") for key in ("watch", "aggregate", "model", "validate", "judge")),
    ("prune", "clean up"),
    ("receipt", "new receipt"),
)


@dataclass(frozen=True)
class HostPlan:
    """Everything about one host.

    `goes_on` says that its worker is training, and is left to it. `chunks` are those that it lacks,
    `deliveries` how each comes to it, `sources` that in sums. `serf` is its agent, None where it has none.
    """

    node: NetworkNode
    unreachable: str | None = None
    path: str = ""
    emulated: bool = False
    share: int = 0
    quotas: Mapping[str, int] = field(default_factory=dict)
    limits: NodeLimits | None = None
    lock: str = ""
    notes: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    missing_packages: tuple[str, ...] = ()
    files: tuple[FileChange, ...] = ()
    chunks: tuple[PlannedChunk, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    sources: tuple[ChunkSource, ...] = ()
    manifests: tuple[str, ...] = ()
    config_sha256: str = ""
    preflight: Preflight | None = None
    drift: tuple[Drift, ...] = ()
    moves: tuple[ChunkMove, ...] = ()
    seconds_to_send: float = 0.0
    send_rate: str = ""
    interrupts: str = ""
    goes_on: bool = False
    removals: tuple[Removal, ...] = ()
    wanted_chunks: frozenset[str] = frozenset()
    receipt: Receipt | None = None
    old_receipt: Receipt | None = None
    serf: SerfPlan | None = None

    @property
    def verdict(self) -> str:
        """What the plan means for this host, in few words."""
        if self.unreachable:
            return "unknown"
        if not self.actions:
            return "no change"
        for key, words in _VERDICTS:
            if self.does(key):
                return "goes on training" if self.goes_on and words == "validate" else words
        return "update"

    def does(self, key: str) -> bool:
        """Whether an action of this key is planned here."""
        return any(action.key == key for action in self.actions)

    def require_receipt(self) -> Receipt:
        """The receipt that this host should have.

        Raises:
            FleetError: the host did not answer, so that none was made.
        """
        if self.receipt is None:
            raise FleetError("has no receipt: it did not answer", host=self.node.hostname)
        return self.receipt


@dataclass(frozen=True)
class DepartedHost:
    """A host that has something of this fleet's, and is no longer in the inventory.

    `actions` are "drain" (its worker is stopped before the others go on without it) and "clean" (all of ours
    is removed, after the new owners have verified their copies). `gone` says that the tailnet does not know
    it any more, so that it is forgotten. `frees` is in bytes.
    """

    name: str
    login: Login
    gone: bool = False
    unreachable: str | None = None
    run: str = ""
    frees: int = 0
    actions: tuple[Action, ...] = ()

    def does(self, key: str) -> bool:
        """Whether an action of this key is planned here."""
        return any(action.key == key for action in self.actions)

    @property
    def remembered(self) -> bool:
        """Whether it may still have something of ours after this deploy, so that receipts go on naming it."""
        kept = self.frees and not self.does("clean")
        return not self.gone and bool(self.unreachable is not None or kept)


CPU_LOCK, CUDA_LOCK = "worker-cpu", "worker-cuda"


@dataclass(frozen=True)
class Material:
    """What is sent to nodes besides data: ids of the code and of the environments' locks.

    `cpu_build_at_hand` says that a wheel folder or an index of the user's choice has torch's CPU build, which
    the ordinary index does not carry.
    """

    code_id: str
    locks: Mapping[str, str]
    cpu_build_at_hand: bool

    def lock_for(self, device: str, environments: frozenset[str]) -> str:
        """The name of the lock for a node: the CPU build where it can be had or is there already."""
        cpu = self.cpu_build_at_hand or self.locks[CPU_LOCK] in environments
        return CPU_LOCK if device == "cpu" and cpu else CUDA_LOCK


@dataclass(frozen=True)
class Plan:
    """What will happen.

    `id` is a hash of everything that will be done, and of why. `trained` is how much of the run's tokens the
    fleet has. `quorum` nodes, with the primary, must be left for a phase to begin: all of them where fault
    tolerance is off. `moved` counts, for each data set that nodes have, the records that come to another node
    than before; `least_moved` is the least that any placement with these quotas could move. `lock` is who is
    deploying at this moment, `deploys` how many there were before. `storage` is the backend, None where the
    control machine sends. `division` is who holds which part of the model, None where each holds all of it.
    `topology` is how they average, and what is expected of a round.
    """

    id: str
    run_id: str
    run_state: str
    settings: Settings
    datasets: tuple[PlannedDataset, ...]
    placements: Mapping[str, Placement]
    moved: Mapping[str, int]
    material: Material
    hosts: tuple[HostPlan, ...]
    quorum: int
    least_moved: Mapping[str, int] = field(default_factory=dict)
    departed: tuple[DepartedHost, ...] = ()
    lock: LockHolder | None = None
    deploys: int = 0
    trained: float | None = None
    storage: PlannedStorage | None = None
    division: Division | None = None
    topology: PlannedTopology | None = None

    def host(self, name: str) -> HostPlan:
        """The plan of one host."""
        return next(host for host in self.hosts if host.node.hostname == name)

    @property
    def primary(self) -> HostPlan:
        """The plan of the primary."""
        return next(host for host in self.hosts if host.node.role.value == "primary")

    @property
    def changes(self) -> bool:
        """Whether anything will be done anywhere."""
        return any(host.actions for host in self.hosts) or any(host.actions for host in self.departed)

    @property
    def storage_uploads(self) -> frozenset[str]:
        """The packs that the storage backend lacks."""
        return frozenset(self.storage.uploads or ()) if self.storage else frozenset()

    def phase_hosts(self, phase: Phase) -> tuple[HostPlan, ...]:
        """The hosts that do something in a phase."""
        return tuple(h for h in self.hosts if any(action.phase is phase for action in h.actions))


def digest(value: object) -> str:
    """SHA-256 of a value's canonical JSON, which need not fit into memory."""
    found = hashlib.sha256()
    for piece in json.JSONEncoder(sort_keys=True, separators=(",", ":")).iterencode(value):
        found.update(piece.encode())
    return found.hexdigest()


def run_ids(
    settings: Settings, datasets: Sequence[PlannedDataset], material: Material, nodes: Sequence[NetworkNode]
) -> tuple[str, str]:
    """The two halves of a run's id: what is trained, and by which nodes.

    A run that is under way goes on when the fleet changes; a finished one trains again with the new fleet.
    """
    what = {
        "data": [[dataset.domain, dataset.manifest_id] for dataset in datasets],
        "code": material.code_id,
        **settings.as_json(),
    }
    return digest(what)[:8], digest([node.hostname for node in nodes])[:8]


def quorum_of(nodes: int) -> int:
    """Two thirds of the nodes, rounded up: what the specification's gossip layer needs for a decision."""
    return -(-2 * nodes // 3)
