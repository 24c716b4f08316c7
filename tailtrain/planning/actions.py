"""From what is declared and observed to the plan, host by host."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.carried import peers_of, placements_of, records_moved, run_at_hand
from tailtrain.planning.hardware import limits_of, require_disk, require_supported
from tailtrain.planning.node_config import Templates, worker_document
from tailtrain.planning.observed import Observation, Observed, RunState
from tailtrain.planning.plan import (
    Action,
    FileChange,
    HostPlan,
    Material,
    Phase,
    Plan,
    digest,
    quorum_of,
    run_ids,
)
from tailtrain.planning.shares import apportion, q16_weights, usable_cores
from tailtrain.planning.work import HostContext, actions_of
from tailtrain.spec import NetworkNode, NodeReserve, NodeRole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
    from tailtrain.planning.node_config import NodeLimits, Peer
    from tailtrain.planning.placement import Placement
    from tailtrain.planning.settings import Settings


@dataclass(frozen=True)
class Declared:
    """What a person declared: nodes in inventory order, what they keep for themselves, and the settings."""

    nodes: tuple[NetworkNode, ...]
    reserves: Mapping[str, NodeReserve]
    settings: Settings

    @property
    def primary(self) -> NetworkNode:
        """The one node that aggregates."""
        return next(node for node in self.nodes if node.role is NodeRole.PRIMARY)


@dataclass(frozen=True)
class _Fleet:
    """What is the same for every host of a plan."""

    declared: Declared
    datasets: Sequence[PlannedDataset]
    material: Material
    templates: Templates
    run_id: str
    peers: Sequence[Peer]
    quotas: Mapping[str, Mapping[str, int]]
    placements: Mapping[str, Placement]
    quorum: int
    primary_run: RunState

    @property
    def finished(self) -> bool:
        return self.primary_run.run_id == self.run_id and self.primary_run.state == "finished"


def make_plan(
    declared: Declared,
    datasets: Sequence[PlannedDataset],
    material: Material,
    templates: Templates,
    observed: Observed,
    new_peer_ids: Mapping[str, str],
) -> Plan:
    """The plan for a fleet; the same inputs always give the same plan.

    Args:
        declared: nodes and settings.
        datasets: what the manifests say.
        material: ids of code and environment.
        templates: the project's Jinja templates.
        observed: one answer, or the reason for none, of each node.
        new_peer_ids: for nodes that have no identity yet, the id of the one they will be given.

    Raises:
        DeclarationError: naming the host and what about it does not fit, before anything is changed anywhere.
    """
    settings, nodes = declared.settings, declared.nodes
    answers = {name: answer for name, answer in observed.items() if isinstance(answer, Observation)}
    for node in nodes:
        if node.hostname in answers:
            require_supported(node, answers[node.hostname])
    what, who = run_ids(settings, datasets, material, nodes)
    weights = [usable_cores(node, declared.reserves) for node in nodes]
    names = [node.hostname for node in nodes]
    quotas = {
        dataset.domain: dict(zip(names, apportion(dataset.train_records, weights), strict=True))
        if settings.training.data_sharding
        else dict.fromkeys(names, dataset.train_records)
        for dataset in datasets
    }
    primary = answers.get(declared.primary.hostname)
    fleet = _Fleet(
        declared=declared,
        datasets=datasets,
        material=material,
        templates=templates,
        run_id=run_at_hand(what, nodes, answers) or what + who,
        peers=peers_of(settings, nodes, answers, new_peer_ids),
        quotas=quotas,
        placements=placements_of(settings, nodes, datasets, quotas, answers),
        quorum=quorum_of(len(nodes)) if settings.training.fault_tolerance else len(nodes),
        primary_run=primary.run if primary else RunState(),
    )
    hosts = []
    for node, share in zip(nodes, q16_weights(weights), strict=True):
        answer = observed[node.hostname]
        hosts.append(
            _host_plan(fleet, node, answer, share.raw)
            if isinstance(answer, Observation)
            else HostPlan(
                node=node,
                unreachable=answer.reason,
                share=share.raw,
                quotas={domain: quota[node.hostname] for domain, quota in quotas.items()},
            )
        )
    hosts = [_with_report(host, hosts) for host in hosts]
    return Plan(
        id=digest({"run": fleet.run_id, "hosts": [_basis(host) for host in hosts]})[:12],
        run_id=fleet.run_id,
        run_state=fleet.primary_run.state if fleet.primary_run.run_id == fleet.run_id else "",
        settings=settings,
        datasets=tuple(datasets),
        placements=fleet.placements,
        moved=records_moved(datasets, fleet.placements, answers),
        material=material,
        hosts=tuple(hosts),
        quorum=fleet.quorum,
    )


def _host_plan(fleet: _Fleet, node: NetworkNode, answer: Observation, share: int) -> HostPlan:
    name = node.hostname
    limits, notes = limits_of(node, fleet.declared.reserves[name], answer)
    lock = fleet.material.lock_for(limits.device, answer.environments)
    document = worker_document(
        run_id=fleet.run_id,
        me=next(peer for peer in fleet.peers if peer.node == name),
        peers=fleet.peers,
        quorum=fleet.quorum,
        limits=limits,
        settings=fleet.declared.settings,
        datasets=fleet.datasets,
        placements=fleet.placements,
    )
    config = fleet.templates.render_worker(name, document)
    config_sha256 = hashlib.sha256(config.encode()).hexdigest()
    files = _files(fleet, name, answer, config, _unit_values(fleet.material, lock, limits))
    wanted = _wanted_chunks(fleet, name)
    chunks = tuple(chunk for chunk in wanted if chunk.sha256 not in answer.chunks)
    manifests = tuple(d.manifest_id for d in fleet.datasets if d.manifest_id not in answer.manifests)
    require_disk(node, answer, wanted, chunks)
    context = HostContext(
        node=node,
        answer=answer,
        material=fleet.material,
        lock=lock,
        run_id=fleet.run_id,
        config_sha256=config_sha256,
        files=files,
        chunks=chunks,
        manifests=manifests,
        finished=fleet.finished,
        primary_run=fleet.primary_run,
    )
    return HostPlan(
        node=node,
        path=answer.path,
        emulated=answer.emulated,
        share=share,
        quotas={domain: quota[name] for domain, quota in fleet.quotas.items()},
        limits=limits,
        lock=lock,
        notes=notes,
        actions=tuple(actions_of(context)),
        missing_packages=answer.missing_packages,
        files=files,
        chunks=chunks,
        manifests=manifests,
        config_sha256=config_sha256,
    )


def _unit_values(material: Material, lock: str, limits: NodeLimits) -> dict[str, object]:
    return {
        "account": layout.ACCOUNT,
        "code": layout.code(material.code_id),
        "config": layout.CONFIG,
        "environment": layout.environment(material.locks[lock]),
        "state_dir": layout.STATE_DIR,
        "threads": limits.threads,
        "cpu_quota_percent": limits.cpu_quota_percent,
        "memory_bytes": limits.memory_bytes,
        "device": limits.device,
        "nice": limits.nice,
    }


def _files(
    fleet: _Fleet, name: str, answer: Observation, config: str, unit_values: Mapping[str, object]
) -> tuple[FileChange, ...]:
    """The text files that the host lacks or has otherwise."""
    wanted = [(layout.CONFIG, "0640", layout.ACCOUNT, config)]
    for unit in (layout.WORKER_UNIT, layout.VALIDATE_UNIT):
        text = fleet.templates.render(f"{unit}.j2", name, unit_values)
        wanted.append((f"{layout.UNIT_DIR}/{unit}", "0644", "root", text))
    return tuple(
        FileChange(path, mode, group, answer.files.get(path), text)
        for path, mode, group, text in wanted
        if answer.files.get(path) != text
    )


def _wanted_chunks(fleet: _Fleet, name: str) -> tuple[PlannedChunk, ...]:
    """The chunks that a node owns rows of, and all held-out ones."""
    wanted: dict[str, PlannedChunk] = {}
    for dataset in fleet.datasets:
        owned = {sha256 for sha256, _, _ in fleet.placements[dataset.domain].get(name, ())}
        wanted |= {chunk.sha256: chunk for chunk in dataset.train if chunk.sha256 in owned}
        wanted |= {chunk.sha256: chunk for chunk in dataset.heldout}
    return tuple(wanted.values())


def _with_report(host: HostPlan, hosts: Sequence[HostPlan]) -> HostPlan:
    """The primary writes the report whenever anybody validates."""
    if host.node.role is not NodeRole.PRIMARY or host.unreachable:
        return host
    if not any(other.does("validate") for other in hosts):
        return host
    report = Action(Phase.VALIDATE, "judge", "compare with both baselines, report", "after validation")
    return replace(host, actions=(*host.actions, report))


def _basis(host: HostPlan) -> list[object]:
    """Everything about a host that a plan's id vouches for."""
    return [
        host.node.hostname,
        host.unreachable,
        host.lock,
        host.config_sha256,
        [[action.key, action.what, action.why] for action in host.actions],
        list(host.missing_packages),
        [[change.path, change.before, change.after] for change in host.files],
        [chunk.sha256 for chunk in host.chunks],
        list(host.manifests),
    ]
