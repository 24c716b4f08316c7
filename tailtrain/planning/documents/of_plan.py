"""From a plan to its document. What hosts and files say is masked here, before anybody sees it."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import msgspec

from tailtrain.planning.documents.host import DepartedEntry, Lock, Login
from tailtrain.planning.documents.of_division import division_entry
from tailtrain.planning.documents.of_host import action_entry, host_entry, said
from tailtrain.planning.documents.of_topology import topology_entry
from tailtrain.planning.documents.plan import (
    DatasetEntry,
    Destruction,
    Gate,
    KnownLater,
    PhaseEntry,
    PlanDocument,
    Run,
    Totals,
)
from tailtrain.planning.parts import Phase
from tailtrain.planning.rendering.diffs import folded_diffs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailtrain.planning.plan import DepartedHost, HostPlan, Plan
    from tailtrain.planning.settings import Settings

TITLES = {
    Phase.PROVISION: "provision",
    Phase.DISTRIBUTE: "1 data distribution",
    Phase.TRAIN: "2 distributed training",
    Phase.AGGREGATE: "3 model aggregation",
    Phase.VALIDATE: "4 validation",
    Phase.CLEAN: "clean",
}
# What an action of this key makes known, and the phase after which it is.
_KNOWN_LATER = {
    "watch": ("the rounds, and the tokens of each node", "training"),
    "aggregate": ("the model, its SHA-256 and who is in its average", "aggregation"),
    "validate": ("the held-out losses, and whether the model learned", "validation"),
}


def document_of(plan: Plan, *, diffs: bool = True) -> PlanDocument:
    """The document of a plan; the same plan always gives the same one.

    Args:
        plan: what will happen.
        diffs: also say what changes in each text file, which takes its time where many hosts change.
    """
    gate = _gate(plan)
    hosts = tuple(host_entry(host, plan, gate) for host in plan.hosts)
    destructive = tuple(_destructive(plan))
    return PlanDocument(
        id=plan.id,
        changes=plan.changes,
        run=Run(id=plan.run_id, state=plan.run_state, trained=plan.trained),
        lock=Lock(**{name: said(value) for name, value in asdict(plan.lock).items()}) if plan.lock else None,
        settings=settings_of(plan.settings),
        code=plan.material.code_id,
        datasets=tuple(_datasets(plan)),
        division=division_entry(plan),
        topology=topology_entry(plan.topology),
        hosts=hosts,
        departed=tuple(_departed(host) for host in plan.departed),
        phases=tuple(_phases(plan)),
        gate=gate,
        known_later=tuple(
            KnownLater(what=what, after=after)
            for key, (what, after) in _KNOWN_LATER.items()
            if any(host.does(key) for host in plan.hosts)
        ),
        diffs=folded_diffs(plan.hosts) if diffs else (),
        destructive=destructive,
        totals=Totals(
            hosts=len(plan.hosts),
            changing=sum(bool(host.actions) for host in plan.hosts),
            unchanged=sum(not host.actions and not host.unreachable for host in plan.hosts),
            unknown=sum(bool(host.unreachable) for host in plan.hosts),
            leaving=len(plan.departed),
            share=sum(host.share for host in plan.hosts),
            packs_to_upload=len(plan.storage_uploads),
            bytes_to_upload=sum(plan.storage.uploads.values())
            if plan.storage and plan.storage.uploads
            else 0,
            chunks_to_send=sum(len(host.chunks) for host in plan.hosts),
            bytes_to_send=sum(chunk.bytes for host in plan.hosts for chunk in host.chunks),
            seconds_to_send=max((host.seconds_to_send for host in plan.hosts), default=0.0),
            records_moved=sum(plan.moved.values()),
            least_moved=sum(plan.least_moved.values()),
            bytes_freed=sum(each.bytes for each in destructive),
        ),
    )


def settings_of(settings: Settings) -> dict[str, str | int | float | bool | None]:
    """Every setting by the name that group data has it under."""
    training = msgspec.structs.asdict(settings.training)
    flat = {name: getattr(value, "value", value) for name, value in training.items()}
    flat |= {f"datasets.{domain}": file for domain, file in settings.datasets}
    flat |= {f"model.{name}": value for name, value in asdict(settings.model).items()}
    flat |= {f"training.{name}": value for name, value in asdict(settings.loop).items()}
    flat |= {f"storage.{name}": value for name, value in asdict(settings.storage).items()}
    flat |= {f"engine.{name}": value for name, value in asdict(settings.engine).items()}
    sections = ("training", "datasets", "model", "loop", "storage", "engine")
    flat |= {
        field.name: getattr(settings, field.name) for field in fields(settings) if field.name not in sections
    }
    return {name: said(value) if isinstance(value, str) else value for name, value in flat.items()}


def _gate(plan: Plan) -> Gate:
    reachable = sum(not host.unreachable for host in plan.hosts)
    return Gate(
        primary=plan.primary.node.hostname,
        needed=plan.quorum,
        nodes=len(plan.hosts),
        reachable=reachable,
        open=reachable >= plan.quorum and not plan.primary.unreachable,
    )


def _datasets(plan: Plan) -> Iterator[DatasetEntry]:
    for dataset in plan.datasets:
        domain = dataset.domain
        yield DatasetEntry(
            domain=domain,
            file=dataset.file,
            manifest=dataset.manifest_id,
            bytes=dataset.file_bytes,
            records=dataset.records,
            trained_on=dataset.train_records,
            held_out=dataset.heldout_records,
            chunks=len(dataset.train) + len(dataset.heldout),
            shared_out=sum(host.quotas[domain] for host in plan.hosts) if plan.settings.shares_data else None,
            moved=plan.moved.get(domain),
            least_moved=plan.least_moved.get(domain),
        )


def _departed(host: DepartedHost) -> DepartedEntry:
    return DepartedEntry(
        name=host.name,
        login=Login(ssh_user=host.login.ssh_user, sudo=host.login.sudo),
        gone=host.gone,
        unreachable=said(host.unreachable) if host.unreachable else None,
        run=said(host.run),
        frees=host.frees,
        actions=tuple(action_entry(action) for action in host.actions),
    )


def _phases(plan: Plan) -> Iterator[PhaseEntry]:
    for phase in Phase:
        leaving = [h.name for h in plan.departed if any(action.phase is phase for action in h.actions)]
        yield PhaseEntry(
            name=phase.value,
            title=TITLES[phase],
            hosts=(*(host.node.hostname for host in plan.phase_hosts(phase)), *leaving),
        )


def _destructive(plan: Plan) -> Iterator[Destruction]:
    """What is interrupted, then what is removed, then what is taken from hosts that left."""
    yield from _interruptions(plan.hosts)
    for left in plan.departed:
        for action in left.actions:
            if action.key == "drain" and left.run:
                yield Destruction(
                    host=left.name,
                    kind="interrupt",
                    what=said(action.what),
                    why=said(action.why),
                    bytes=0,
                    paths=(),
                )
    for host in plan.hosts:
        for each in host.removals:
            yield Destruction(
                host=host.node.hostname,
                kind="remove",
                what=said(each.what),
                why=said(each.why),
                bytes=each.bytes,
                paths=tuple(said(path) for path in each.paths),
            )
    for left in plan.departed:
        for action in left.actions:
            if action.key == "clean":
                yield Destruction(
                    host=left.name,
                    kind="leave",
                    what=said(action.what),
                    why=said(action.why),
                    bytes=left.frees,
                    paths=(),
                )


def _interruptions(hosts: tuple[HostPlan, ...]) -> Iterator[Destruction]:
    for host in hosts:
        if host.interrupts:
            why = next((action.why for action in host.actions if action.key == "restart"), "")
            yield Destruction(
                host=host.node.hostname,
                kind="interrupt",
                what=said(host.interrupts),
                why=said(why),
                bytes=0,
                paths=(),
            )
