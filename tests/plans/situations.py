"""Fleets in a given situation, for the golden plans and other tests: what is declared, what the hosts answer.

Each method returns the situation, so that a case reads as a sentence.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.actions import Declared, make_plan
from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.memory import parameters
from tailtrain.planning.observed import Hardware, Measured, Observation, RunState, UnitState, Unreachable
from tailtrain.planning.plan import CPU_LOCK, CUDA_LOCK, Material, Plan
from tailtrain.planning.receipt import Login
from tailtrain.planning.rendering.plan import render_plan
from tailtrain.planning.settings import parse_settings
from tailtrain.planning.storage_plan import PlannedStorage
from tailtrain.planning.templates import Templates
from tailtrain.planning.work import CREDENTIALS_MODE
from tailtrain.spec import NetworkNode, NodeReserve, NodeRole
from tailtrain.spec.defaults import ALL_NODES

if TYPE_CHECKING:
    from tailtrain.planning.departed import DepartedFound
    from tailtrain.planning.division.planned import RoundTrips
    from tailtrain.planning.plan import HostPlan
    from tailtrain.planning.sourcing import Paths

GIB = 2**30
PROJECT = Path(__file__).parents[2]
NAMES = tuple(node.hostname for node in ALL_NODES)
PRIMARY = next(node.hostname for node in ALL_NODES if node.role is NodeRole.PRIMARY)
SEVENTH = NetworkNode("lighthouse", "100.64.0.9", 8, 16, has_gpu=False, role=NodeRole.COMPUTE, storage_gb=200)
MODEL = hashlib.sha256(b"the aggregated model").hexdigest()
SETTINGS: dict[str, Any] = {
    "distribution_strategy": "dataParallel",
    "coordination_protocol": "decentralized",
    "storage_backend": "local",
    "resource_allocation": "declared_cores",
    "load_balancing": "static",
    "datasets": {"natural": "prose.parquet", "coding": "code.parquet"},
}
STORAGE: dict[str, Any] = {
    "path": "fleet:training/chunks",
    "config_sha256": hashlib.sha256(b"[fleet]").hexdigest(),
    "flags": ("--fast-list",),
}
GOSSIP_KEY = bytes(range(32))
MATERIAL = Material(
    code_id="c0de000000000001",
    locks={CPU_LOCK: "10cc000000000001", CUDA_LOCK: "10cc000000000002"},
    cpu_build_at_hand=True,
)


@cache
def templates() -> Templates:
    """The project's own."""
    return Templates({path.name: path.read_text() for path in (PROJECT / "templates").glob("*.j2")})


def dataset(domain: str, file: str, rows: tuple[int, ...], heldout: tuple[int, ...]) -> PlannedDataset:
    """A data set with chunks of these many rows, 300 bytes each."""
    chunks = [
        PlannedChunk(hashlib.sha256(f"{domain} {index}".encode()).hexdigest(), 300 * count, count)
        for index, count in enumerate((*rows, *heldout))
    ]
    return PlannedDataset(
        domain=domain,
        file=file,
        file_bytes=280 * sum((*rows, *heldout)),
        manifest_id=hashlib.sha256(f"{domain} manifest".encode()).hexdigest(),
        records=sum((*rows, *heldout)),
        train=tuple(chunks[: len(rows)]),
        heldout=tuple(chunks[len(rows) :]),
    )


DATASETS = (
    dataset("natural", "prose.parquet", (250, 251, 249) * 20, (120, 118)),
    dataset("coding", "code.parquet", (90, 110) * 15, (41,)),
)


def bare(node: NetworkNode, number: int) -> Observation:
    """A host with the declared hardware and nothing of ours on it."""
    return Observation(
        node=node.hostname,
        address=f"100.64.0.{number}",
        path="direct",
        emulated=False,
        superuser=True,
        hardware=Hardware(
            architecture="x86_64",
            system="Debian GNU/Linux 12 (bookworm)",
            python=layout.PYTHON,
            systemd=True,
            cores=node.cores,
            usable_cores=float(node.cores),
            memory_bytes=int(0.97 * node.ram_gb * GIB),
            gpus=("0000:01:00.0",) if node.has_gpu else (),
            disk_free_bytes=50 * 10**9,
            clock_skew_seconds=0.0,
        ),
        missing_packages=("python3-venv",),
    )


def peer_id(name: str) -> str:
    """A peer id that looks like one, the same for the same node."""
    digits = hashlib.sha256(name.encode()).hexdigest().translate(str.maketrans("0", "g"))
    return f"Qm{digits[:44]}"


@dataclass
class Situation:
    """What is declared and what was observed; `text` is the plan for it, or the refusal."""

    nodes: tuple[NetworkNode, ...] = tuple(ALL_NODES)
    reserves: dict[str, NodeReserve] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    datasets: tuple[PlannedDataset, ...] = DATASETS
    material: Material = MATERIAL
    observed: dict[str, Observation | Unreachable] = field(default_factory=dict)
    departed: tuple[DepartedFound, ...] = ()
    storage: PlannedStorage | None = None
    paths: Paths | None = None
    round_trip: float | None = None
    diff: bool = False

    def __post_init__(self) -> None:
        for number, node in enumerate(self.nodes, 2):
            self.observed.setdefault(node.hostname, bare(node, number))

    def plan(self) -> Plan:
        """The plan for this situation."""
        return make_plan(
            self.declared(),
            self.datasets,
            self.material,
            templates(),
            self.observed,
            {node.hostname: peer_id(node.hostname) for node in self.nodes},
            self.departed,
            storage=self.storage,
            paths=self.paths,
            round_trips=self.trips(),
            gossip_key=GOSSIP_KEY,
        )

    def declared(self) -> Declared:
        """Nodes and settings as planning takes them."""
        reserves = {node.hostname: self.reserves.get(node.hostname, NodeReserve()) for node in self.nodes}
        logins = {node.hostname: Login() for node in self.nodes}
        return Declared(self.nodes, reserves, parse_settings(self.settings), logins)

    def text(self) -> str:
        """The plan as a person sees it, or the one sentence that refuses."""
        try:
            return render_plan(document_of(self.plan()), diff=self.diff)
        except DeclarationError as error:
            return f"Refused: {error}\n"

    def answer(self, name: str) -> Observation:
        """What a host that can be reached answered."""
        found = self.observed[name]
        assert isinstance(found, Observation)
        return found

    def with_settings(self, **settings: Any) -> Situation:
        """Other values in group_data."""
        self.settings |= settings
        return self

    def stored(self, backend: str, **fields: Any) -> Situation:
        """A backend keeps the data, and lacks what is named as `uploads`."""
        self.storage = PlannedStorage(**{**STORAGE, **fields})
        return self.with_settings(storage_backend=backend, storage={"remote": self.storage.path})

    def stored_nowhere(self) -> Situation:
        """Back to the control machine as the source."""
        self.storage = None
        return self.with_settings(storage_backend="local", storage={})

    def path(self, host: str, other: str, kind: str) -> Situation:
        """A host reaches another one that way; where none is said of two, the path is direct."""
        names = [node.hostname for node in self.nodes]
        everywhere = {name: dict.fromkeys((n for n in names if n != name), "direct") for name in names}
        self.paths = self.paths or everywhere
        self.paths[host][other] = kind
        return self

    def round_trips(self, seconds: float) -> Situation:
        """So long is a round trip between any two of the nodes that answered."""
        self.round_trip = seconds
        return self

    def trips(self) -> RoundTrips | None:
        """Between the nodes, as they were measured."""
        names = [name for name, answer in self.observed.items() if isinstance(answer, Observation)]
        pairs = [(one, other) for index, one in enumerate(names) for other in names[index + 1 :]]
        return None if self.round_trip is None else dict.fromkeys(pairs, (self.round_trip, True))

    def declare(self, name: str, **fields: Any) -> Situation:
        """Another declaration for a node that is there already."""
        self.nodes = tuple(
            msgspec.structs.replace(node, **fields) if node.hostname == name else node for node in self.nodes
        )
        return self

    def add(self, node: NetworkNode) -> Situation:
        """One more line in the inventory, for a host with nothing on it."""
        self.nodes = (*self.nodes, node)
        self.observed[node.hostname] = bare(node, len(self.nodes) + 1)
        return self

    def remove(self, name: str) -> Situation:
        """One line less in the inventory."""
        self.nodes = tuple(node for node in self.nodes if node.hostname != name)
        del self.observed[name]
        return self

    def on(self, name: str, **fields: Any) -> Situation:
        """Something else is found on a host."""
        self.observed[name] = replace(self.answer(name), **fields)
        return self

    def hardware(self, name: str, **fields: Any) -> Situation:
        """Other hardware is found on a host."""
        return self.on(name, hardware=replace(self.answer(name).hardware, **fields))

    def optimized(self, **training: Any) -> Situation:
        """The optimizer decides, also how long a round is."""
        return self.with_settings(
            resource_allocation="swarm_topology_optimizer",
            load_balancing="health_weighted",
            training={"round_seconds": 0, "target_tokens": 2_000_000_000, **training},
        )

    def measured(self, name: str, tokens_per_second: float, **fields: Any) -> Situation:
        """A host's worker measured this in a run before, with a model as large as the one of now."""
        values: dict[str, Any] = {
            "run": "beef" * 4,
            "parameters": parameters(self.declared().settings.model),
            "bytes_per_second": 2e6,
            "averaging_seconds": 2.9,
            "round_seconds": 63.0,
        }
        return self.on(name, measured=Measured(tokens_per_second=tokens_per_second, **{**values, **fields}))

    def unreachable(self, name: str, reason: str) -> Situation:
        """A host does not answer."""
        self.observed[name] = Unreachable(name, reason)
        return self

    def applied(
        self, *, state: str = "finished", round_number: int = 40, unit: str = "inactive"
    ) -> Situation:
        """The plan was carried out, and the run got as far as this; validated too where it is finished."""
        plan = self.plan()
        done = state == "finished"
        for host in plan.hosts:
            name = host.node.hostname
            if host.unreachable:
                continue
            answer = self.answer(name)
            run = RunState(
                run_id=plan.run_id,
                state=state,
                round=round_number,
                config_sha256=host.config_sha256,
                final_sha256=MODEL if done else "",
                validated_sha256=MODEL if done else "",
            )
            assert host.receipt is not None
            self.on(
                name,
                receipt=msgspec.structs.replace(
                    host.receipt, plan=plan.id, by="ana@desk", at="2026-11-01T12:00:00+00:00"
                ),
                missing_packages=(),
                account=True,
                environments=frozenset({plan.material.locks[host.lock]}),
                codes=frozenset({plan.material.code_id}),
                peer_id=answer.peer_id or peer_id(name),
                files={**answer.files, **{change.path: change.after for change in host.files}},
                chunks=(answer.chunks | {chunk.sha256 for chunk in host.chunks})
                - {path.rpartition("/")[2] for removal in host.removals for path in removal.paths},
                stray_chunks={},
                manifests=frozenset(dataset.manifest_id for dataset in self.datasets),
                units={
                    layout.WORKER_UNIT: UnitState(active=unit, enabled=True),
                    layout.CHUNKS_UNIT: UnitState(active="active", enabled=True),
                    **self._agent(host),
                },
                secrets={file.path: file.as_found for file in host.serf.files} if host.serf else {},
                credentials=f"{plan.storage.config_sha256} {CREDENTIALS_MODE}" if plan.storage else "",
                run=run,
            )
        return self

    def _agent(self, host: HostPlan) -> dict[str, UnitState]:
        """The units about Serf on a host whose plan was carried out."""
        if host.serf is None:
            return {}
        return {
            layout.SERF_UNIT: UnitState(active="active", enabled=True, applied=host.serf.digest),
            layout.DEBIAN_SERF_UNIT: UnitState(masked=True),
        }

    def unit(self, name: str, active: str, unit: str = layout.WORKER_UNIT, **fields: Any) -> Situation:
        """A host's unit, its worker's if none is named, is in another state; it starts at boot."""
        state = UnitState(**{"active": active, "enabled": True, **fields})
        return self.on(name, units={**self.answer(name).units, unit: state})

    def shown_diff(self) -> Situation:
        """The plan is asked for with --diff."""
        self.diff = True
        return self
