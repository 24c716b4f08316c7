"""One deploy: what is declared, one probe of every host, and the plan that all hosts' deploy code works from.

pyinfra runs a deploy file once for each host, in parallel, and has no hook after connecting. So the first
one to ask makes the plan for all, under a lock, while the others wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import click
import msgspec
from gevent.lock import RLock
from pyinfra import context

from tailtrain.data import cache
from tailtrain.errors import FleetError, TailtrainError
from tailtrain.fleet import departed, material, paths, probe
from tailtrain.fleet.approval import is_approved
from tailtrain.fleet.datasets import WORK_DIR
from tailtrain.fleet.declared import declared_fleet
from tailtrain.fleet.gate import Gate, require_quorum
from tailtrain.fleet.gathering import gather
from tailtrain.fleet.gossip_key import fleet_key
from tailtrain.fleet.keyring import kept_identity
from tailtrain.fleet.lock import own_name
from tailtrain.fleet.refusal import Refused
from tailtrain.planning import layout
from tailtrain.planning.actions import Declared, make_plan
from tailtrain.planning.departed import departed_names
from tailtrain.planning.division.stage_nodes import is_to_be_measured
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.observed import Observation, Observed
from tailtrain.planning.receipt import receipts_of
from tailtrain.planning.rendering.plan import render_plan
from tailtrain.planning.sharing import coming_to
from tailtrain.planning.sourcing import paths_to_ask

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from tailtrain.fleet.storage import Storage
    from tailtrain.planning.plan import HostPlan, Plan
    from tailtrain.planning.receipt import Receipt


@dataclass
class Session:
    """Everything that one deploy knows.

    `departed` has each host that left, connected, or the reason why not; `cleaned` fills with those that are
    done with. `verified` says whether all hosts were found to have what is their own (None: not asked yet).
    `reports` fills after training with each node's last status, `rates` with bytes per second to a host.
    `gate` stands in a deploy, not where a plan is only looked at. `storage` is the backend, `mended` the
    chunks that were damaged there and are uploaded again.
    """

    project: Path
    declared: Declared
    bundle: material.Bundle
    observed: Observed
    plan: Plan
    identities: dict[str, tuple[bytes, str]]
    departed: dict[str, Host | str] = field(default_factory=dict)
    cleaned: set[str] = field(default_factory=set)
    verified: bool | None = None
    reports: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    gate: Gate | None = None
    storage: Storage | None = None
    mended: frozenset[str] = frozenset()

    def require_gate(self) -> Gate:
        """The gate that stands in this deploy.

        Raises:
            FleetError: nothing is being deployed; this session only looks.
        """
        if self.gate is None:
            raise FleetError("nothing is being deployed here")
        return self.gate

    def require_storage(self) -> Storage:
        """The storage backend of this deploy.

        Raises:
            FleetError: none is declared.
        """
        if self.storage is None:
            raise FleetError("no storage backend is declared")
        return self.storage

    @property
    def chunk_dir(self) -> Path:
        """Where the control machine keeps chunk files, named by their hash."""
        return cache.chunk_dir(self.project / WORK_DIR / "datasets")

    def manifest_path(self, manifest_id: str) -> Path:
        """Where the control machine keeps a manifest."""
        return cache.manifest_path(self.project / WORK_DIR / "datasets", manifest_id)

    @property
    def identity_dir(self) -> Path:
        """Where identities are kept that their nodes do not have yet."""
        return self.project / WORK_DIR / "identities"

    @property
    def run_dir(self) -> Path:
        """Where the control machine keeps what it fetched of this run."""
        return self.project / WORK_DIR / "runs" / self.plan.run_id

    def receipt(self, plan: HostPlan) -> Receipt:
        """What a host keeps of what was applied to it; hosts that left are named until they are cleaned."""
        leaving = {
            host.name: host.login
            for host in self.plan.departed
            if host.actions and host.name not in self.cleaned
        }
        planned = plan.require_receipt()
        return msgspec.structs.replace(
            planned,
            plan=self.plan.id,
            by=own_name(),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            fleet={**planned.fleet, **leaving},
            bytes_per_second=self.rates.get(plan.node.hostname, planned.bytes_per_second),
        )

    def worker_command(self, name: str, command: str) -> list[str]:
        """A command of the worker, as the worker's account, outside its unit."""
        whole = self.declared.settings.data_parallel
        module = "tailtrain.worker" if whole else "tailtrain.worker.sharded"
        config = layout.CONFIG if whole else layout.SHARDED_CONFIG
        return [*self.python_command(name, module), command, "--config", config]

    def python_command(self, name: str, module: str) -> list[str]:
        """A module of the worker's code, run as the worker's account, outside its unit."""
        material, plan = self.bundle.material, self.plan.host(name)
        python = f"{layout.environment(material.locks[plan.lock])}/bin/python"
        return [
            *("runuser", "-u", layout.ACCOUNT, "--"),
            *("env", "-C", layout.STATE_DIR, f"PYTHONPATH={layout.code(material.code_id)}"),
            *("PYTHONDONTWRITEBYTECODE=1", python, "-m", module),
        ]


_sessions: WeakKeyDictionary[State, Session | Refused] = WeakKeyDictionary()
_lock = RLock()


def current() -> Session:
    """The session of the running deploy; the first call probes the fleet, makes the plan and shows it.

    Raises:
        Refused: with the text of what is wrong; nothing has been changed anywhere then.
    """
    state: State = context.ctx_state.get()
    with _lock:
        if state not in _sessions:
            _sessions[state] = _open(state)
        found = _sessions[state]
        if isinstance(found, Refused):
            raise found
        return found


def _open(state: State) -> Session | Refused:
    """Show the plan; what stands against it is kept, so that the hosts that wait do not try it again."""
    try:
        session = begin(state)
        if is_approved(session.plan):
            click.echo(f"\nPlan {session.plan.id}, as approved\n", err=True)
        else:
            diff = state.config.DIFF
            click.echo("\n" + render_plan(document_of(session.plan, diffs=diff), diff=diff), err=True)
        if session.plan.changes:
            require_quorum(session.plan, "connecting", set())
    except TailtrainError as error:
        return Refused(str(error))
    session.gate = Gate(state, session.plan, session.cleaned)
    session.gate.attach(state)
    return session


def _peer_ids(observed: Observed) -> frozenset[str]:
    answers = [answer for answer in observed.values() if isinstance(answer, Observation)]
    return frozenset(answer.peer_id for answer in answers if answer.peer_id)


def here() -> HostPlan:
    """The plan of the host whose deploy code is running."""
    host: Host = context.ctx_host.get()
    return current().plan.host(host.name)


def anywhere(key: str) -> bool:
    """Whether any host has an action of this key.

    Deploys ask this, not whether the host at hand has it: an operation that some hosts lack has no place in
    their order, and pyinfra could run it beside or after what must follow it.
    """
    plan = current().plan
    return any(host.does(key) for host in plan.hosts) or any(host.does(key) for host in plan.departed)


def begin(state: State) -> Session:
    """Declared, probed, planned: in this order, each only if the one before it is right.

    Raises:
        TailtrainError: naming what is wrong, and where.
    """
    project = Path(state.cwd or Path.cwd())
    declared = declared_fleet(state.inventory)
    gathered = gather(project, declared)
    bundle, datasets, storage = gathered.bundle, gathered.datasets, gathered.storage
    hosts = list(state.inventory)
    if state.should_raise_failed_hosts is not None:
        # Without -y pyinfra asks after every failure whether to go on; the gate decides that.
        state.should_raise_failed_hosts = lambda _: False
    answers = project / WORK_DIR / "answers"
    observed = probe.probe(hosts, set(state.active_hosts), datasets, bundle.material, answers)
    names = {node.hostname for node in declared.nodes}
    named = departed_names(names, receipts_of(observed.values()))
    logins = departed.really_left(named, state.inventory)
    left = departed.connect(logins, state)
    identities = {
        node.hostname: kept_identity(project / WORK_DIR / "identities", node.hostname)
        for node in declared.nodes
        if isinstance(answer := observed[node.hostname], Observation) and answer.peer_id is None
    }
    coming = coming_to(declared, datasets, bundle.material, observed)
    ways = paths.between(hosts, observed, paths_to_ask(coming, paths.MOST_ASKED)) if coming else None
    measured = is_to_be_measured(declared, datasets, bundle.material, observed)
    if storage:
        storage = storage.looked_at(datasets, needed=bool(coming))
    plan = make_plan(
        declared,
        datasets,
        bundle.material,
        bundle.templates,
        observed,
        {name: peer_id for name, (_, peer_id) in identities.items()},
        departed.for_planning(logins, left, _peer_ids(observed)),
        storage=storage.planned if storage else None,
        paths=ways,
        gossip_key=fleet_key(project / WORK_DIR, declared, hosts, observed),
        round_trips=paths.round_trips(hosts, observed) if measured else None,
    )
    return Session(project, declared, bundle, observed, plan, identities, left, storage=storage)
