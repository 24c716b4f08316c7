"""From observation to actions, host by host."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.planning import layout
from tailtrain.planning.node_config import NodeLimits, Peer, Templates, worker_document
from tailtrain.planning.observed import Observation, Observed, RunState, UnitState
from tailtrain.planning.placement import Chunk, Placement, Range, place
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
from tailtrain.spec import NetworkNode, NodeReserve, NodeRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
    from tailtrain.planning.settings import Settings

_GIB = 2**30
# hivemind takes messages from peers whose clock is within 3 s; the rest is for drift during a run.
MOST_CLOCK_SKEW = 2.0


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
            _require_supported(node, answers[node.hostname])
    what, who = run_ids(settings, datasets, material, nodes)
    run_id = _run_under_way(what, answers) or what + who
    weights = [usable_cores(node, declared.reserves) for node in nodes]
    quotas = {
        dataset.domain: dict(
            zip((node.hostname for node in nodes), apportion(dataset.train_records, weights), strict=True)
        )
        for dataset in datasets
    }
    placements = _placements(settings, nodes, datasets, quotas, answers)
    peers = _peers(settings, nodes, answers, new_peer_ids)
    quorum = quorum_of(len(nodes))
    primary_answer = answers.get(declared.primary.hostname)
    primary_run = primary_answer.run if primary_answer else RunState()
    finished = primary_run.run_id == run_id and primary_run.state == "finished"
    hosts = []
    for node, share in zip(nodes, q16_weights(weights), strict=True):
        name = node.hostname
        answer = observed[name]
        if not isinstance(answer, Observation):
            hosts.append(HostPlan(node=node, unreachable=answer.reason, share=share.raw))
            continue
        limits, notes = _limits(node, declared.reserves[name], answer)
        lock = material.lock_for(limits.device, answer.environments)
        me = next(peer for peer in peers if peer.node == name)
        document = worker_document(
            run_id=run_id,
            me=me,
            peers=peers,
            quorum=quorum if settings.training.fault_tolerance else len(nodes),
            limits=limits,
            settings=settings,
            datasets=datasets,
            placements=placements,
        )
        values = {
            "account": layout.ACCOUNT,
            "code": layout.code(material.code_id),
            "config": layout.CONFIG,
            "environment": layout.environment(material.locks[lock]),
            "state_dir": layout.STATE_DIR,
            "threads": limits.threads,
            "cpu_quota_percent": limits.cpu_quota_percent,
            "memory_bytes": limits.memory_bytes,
            "device": limits.device,
        }
        config = templates.render_worker(name, document)
        wanted = {
            layout.CONFIG: ("0640", layout.ACCOUNT, config),
            f"{layout.UNIT_DIR}/{layout.WORKER_UNIT}": (
                "0644",
                "root",
                templates.render("tailtrain-worker.service.j2", name, values),
            ),
            f"{layout.UNIT_DIR}/{layout.VALIDATE_UNIT}": (
                "0644",
                "root",
                templates.render("tailtrain-validate.service.j2", name, values),
            ),
        }
        files = tuple(
            FileChange(path, mode, group, answer.files.get(path), text)
            for path, (mode, group, text) in wanted.items()
            if answer.files.get(path) != text
        )
        chunks = _missing_chunks(name, answer, datasets, placements)
        manifests = tuple(d.manifest_id for d in datasets if d.manifest_id not in answer.manifests)
        config_sha256 = hashlib.sha256(config.encode()).hexdigest()
        context = _HostContext(
            node,
            answer,
            material,
            lock,
            run_id,
            config_sha256,
            files,
            chunks,
            manifests,
            finished,
            primary_run,
        )
        actions = tuple(_actions(context))
        _require_disk(node, answer, chunks)
        hosts.append(
            HostPlan(
                node=node,
                path=answer.path,
                emulated=answer.emulated,
                share=share.raw,
                quotas={domain: quota[name] for domain, quota in quotas.items()},
                limits=limits,
                lock=lock,
                notes=notes,
                actions=actions,
                missing_packages=answer.missing_packages,
                files=files,
                chunks=chunks,
                manifests=manifests,
                config_sha256=config_sha256,
            )
        )
    hosts = [_with_report(host, hosts) for host in hosts]
    basis: dict[str, Any] = {
        "run": run_id,
        "hosts": [
            [
                host.node.hostname,
                host.unreachable,
                host.config_sha256,
                [[action.key, action.why] for action in host.actions],
                [[change.path, change.before, change.after] for change in host.files],
                [chunk.sha256 for chunk in host.chunks],
            ]
            for host in hosts
        ],
    }
    state = primary_run.state if primary_run.run_id == run_id else ""
    return Plan(
        id=digest(basis)[:12],
        run_id=run_id,
        run_state=state,
        settings=settings,
        datasets=tuple(datasets),
        placements=placements,
        material=material,
        hosts=tuple(hosts),
        quorum=quorum,
    )


def _with_report(host: HostPlan, hosts: Sequence[HostPlan]) -> HostPlan:
    """The primary writes the report whenever anybody validates."""
    if host.node.role is not NodeRole.PRIMARY or not any(other.does("validate") for other in hosts):
        return host
    report = Action(Phase.VALIDATE, "judge", "compare with both baselines, report", "after validation")
    return replace(host, actions=(*host.actions, report))


def _require_supported(node: NetworkNode, answer: Observation) -> None:
    hardware, name = answer.hardware, node.hostname
    checks = (
        (
            answer.superuser,
            "root",
            "a login without root",
            "Set _sudo: True beside the host in the inventory",
        ),
        (hardware.architecture == "x86_64", "x86_64", hardware.architecture, "hivemind has no wheel for it"),
        (hardware.systemd, "systemd as PID 1", "no systemd", "Workers run as systemd units"),
        (
            hardware.python in (None, layout.PYTHON),
            f"Python {layout.PYTHON}",
            f"Python {hardware.python}",
            "The worker's lock is made for that version",
        ),
        (
            abs(hardware.clock_skew_seconds) <= MOST_CLOCK_SKEW,
            f"a clock within {MOST_CLOCK_SKEW:.0f} s of this machine's",
            f"{hardware.clock_skew_seconds:+.1f} s",
            "Switch on time synchronisation there (timedatectl set-ntp true)",
        ),
    )
    for fits, expected, found, fix in checks:
        if not fits:
            raise UnsupportedError(
                "this host cannot be a node", host=name, found=found, expected=expected, fix=fix
            )


def _require_disk(node: NetworkNode, answer: Observation, chunks: Sequence[PlannedChunk]) -> None:
    needed = sum(chunk.bytes for chunk in chunks) + _GIB // 2
    if answer.hardware.disk_free_bytes < needed:
        raise DeclarationError(
            "too little disk space for its chunks and checkpoints",
            host=node.hostname,
            field=layout.STATE_DIR,
            found=f"{answer.hardware.disk_free_bytes:,} bytes free",
            expected=f"{needed:,} bytes",
            fix="Free some space there",
        )


def _run_under_way(what: str, answers: Mapping[str, Observation]) -> str | None:
    """The id of an unfinished run of the same declaration, so that a changed fleet goes on with it."""
    found = [a.run for a in answers.values() if a.run.run_id.startswith(what)]
    open_runs = {run.run_id for run in found} - {run.run_id for run in found if run.state == "finished"}
    return min(open_runs, default=None)


def _limits(
    node: NetworkNode, reserve: NodeReserve, answer: Observation
) -> tuple[NodeLimits, tuple[str, ...]]:
    hardware = answer.hardware
    notes = []
    cores, memory = node.cores - reserve.cores, (node.ram_gb - reserve.ram_gb) * _GIB
    usable = min(float(cores), hardware.usable_cores)
    if answer.emulated:
        notes.append(f"lab host: emulates {node.cores} cores with {hardware.usable_cores:.2f} of one")
    else:
        if hardware.cores < node.cores:
            notes.append(f"declared {node.cores} cores, found {hardware.cores}: found counts")
            cores = min(cores, hardware.cores)
        # The kernel keeps some memory for itself: a machine sold as 8 GB shows about 7.7 GiB.
        if hardware.memory_bytes < 0.9 * node.ram_gb * _GIB:
            notes.append(
                f"declared {node.ram_gb} GB of memory, found {hardware.memory_bytes / _GIB:.1f}: found counts"
            )
            memory = min(memory, hardware.memory_bytes)
    device = "cuda" if node.has_gpu and hardware.gpus else "cpu"
    if node.has_gpu and not hardware.gpus:
        notes.append("declared a GPU, found none: trains on CPU")
    limits = NodeLimits(
        threads=max(1, round(usable)),
        usable_cores=round(usable, 3),
        cpu_quota_percent=cores * 100,
        memory_bytes=memory,
        device=device,
    )
    return limits, tuple(notes)


def _placements(
    settings: Settings,
    nodes: Sequence[NetworkNode],
    datasets: Sequence[PlannedDataset],
    quotas: Mapping[str, Mapping[str, int]],
    answers: Mapping[str, Observation],
) -> dict[str, Placement]:
    placements: dict[str, Placement] = {}
    for dataset in datasets:
        chunks = [Chunk(chunk.sha256, chunk.rows) for chunk in dataset.train]
        if settings.training.data_sharding:
            previous = {name: ranges for name, a in answers.items() if (ranges := _ranges_on(a, dataset))}
            placements[dataset.domain] = place(chunks, quotas[dataset.domain], previous)
        else:
            everything = tuple(Range(chunk.sha256, 0, chunk.rows) for chunk in chunks)
            placements[dataset.domain] = {node.hostname: everything for node in nodes}
    return placements


def _config_on(answer: Observation) -> Mapping[str, Any]:
    try:
        document = json.loads(answer.files.get(layout.CONFIG) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _ranges_on(answer: Observation, dataset: PlannedDataset) -> tuple[tuple[str, int, int], ...]:
    """What a host owns now of a data set. An edited file is not trusted further than its shape."""
    try:
        return next(
            tuple((str(sha256), int(start), int(stop)) for sha256, start, stop in entry["ranges"])
            for entry in _config_on(answer)["data"]
            if entry["manifest"] == dataset.manifest_id
        )
    except (StopIteration, KeyError, TypeError, ValueError):
        return ()


def _peers(
    settings: Settings,
    nodes: Sequence[NetworkNode],
    answers: Mapping[str, Observation],
    new_peer_ids: Mapping[str, str],
) -> list[Peer]:
    """All nodes that can be named as peers: those that answered, and absent ones that others remember."""
    remembered: dict[str, Peer] = {}
    for answer in answers.values():
        try:
            for entry in _config_on(answer)["coordination"]["peers"]:
                remembered[entry["node"]] = Peer(**entry)
        except (KeyError, TypeError):
            continue
    peers = []
    for node in nodes:
        name = node.hostname
        if name in answers:
            peer_id = answers[name].peer_id or new_peer_ids[name]
            peers.append(Peer(name, node.role.value, answers[name].address, settings.worker_port, peer_id))
        elif name in remembered:
            peers.append(remembered[name])
    return peers


def _missing_chunks(
    name: str,
    answer: Observation,
    datasets: Sequence[PlannedDataset],
    placements: Mapping[str, Placement],
) -> tuple[PlannedChunk, ...]:
    wanted: dict[str, PlannedChunk] = {}
    for dataset in datasets:
        owned = {sha256 for sha256, _, _ in placements[dataset.domain].get(name, ())}
        wanted |= {chunk.sha256: chunk for chunk in dataset.train if chunk.sha256 in owned}
        wanted |= {chunk.sha256: chunk for chunk in dataset.heldout}
    return tuple(chunk for sha256, chunk in wanted.items() if sha256 not in answer.chunks)


@dataclass(frozen=True)
class _HostContext:
    node: NetworkNode
    answer: Observation
    material: Material
    lock: str
    run_id: str
    config_sha256: str
    files: tuple[FileChange, ...]
    chunks: tuple[PlannedChunk, ...]
    manifests: tuple[str, ...]
    finished: bool
    primary_run: RunState


def _actions(c: _HostContext) -> Iterator[Action]:
    yield from _provision_actions(c)
    yield from _distribute_actions(c)
    yield from _train_actions(c)
    yield from _judge_actions(c)


def _provision_actions(c: _HostContext) -> Iterator[Action]:
    answer, phase = c.answer, Phase.PROVISION
    if answer.missing_packages:
        names = ", ".join(answer.missing_packages)
        yield Action(phase, "packages", f"install {names}", "not installed")
    if not answer.account:
        yield Action(phase, "account", f"create account {layout.ACCOUNT} and folders", "not there")
    if c.material.locks[c.lock] not in answer.environments:
        yield Action(
            phase,
            "environment",
            f"build the environment {c.lock}",
            "another lock" if answer.environments else "not there",
        )
    if c.material.code_id not in answer.codes:
        why = "code changed" if answer.codes else "not there"
        yield Action(phase, "code", f"send the worker's code {c.material.code_id}", why)
    if answer.peer_id is None:
        yield Action(phase, "identity", "send a peer identity", "none yet")
    if c.files:
        names = ", ".join(change.path.rsplit("/", 1)[1] for change in c.files)
        new = all(change.before is None for change in c.files)
        yield Action(phase, "files", f"write {names}", "not there" if new else "differs")


def _distribute_actions(c: _HostContext) -> Iterator[Action]:
    if not c.chunks and not c.manifests:
        return
    size = sum(chunk.bytes for chunk in c.chunks)
    damaged = len({chunk.sha256 for chunk in c.chunks} & set(c.answer.damaged))
    had_any = bool(c.answer.chunks)
    why = f"{damaged} damaged" if damaged else ("missing" if had_any else "no data there yet")
    what = f"send {len(c.chunks)} chunks, {size / 1e6:.1f} MB" if c.chunks else "send the manifests"
    yield Action(Phase.DISTRIBUTE, "chunks", what, why)


def _train_actions(c: _HostContext) -> Iterator[Action]:
    if c.finished:
        return
    run, unit = c.answer.run, c.answer.units.get(layout.WORKER_UNIT, UnitState())
    ours = run.run_id == c.run_id
    if unit.active != "active":
        if ours and run.state not in ("", "finished"):
            why = f"{run.state} at round {max(run.round, 0)}, unit is {unit.active}: resumes there"
        else:
            why = "not running"
        yield Action(Phase.TRAIN, "start", "start the worker", why)
    elif run.config_sha256 != c.config_sha256 or c.files:
        why = "configuration or unit changed" if ours else f"another run was on: {run.run_id or 'unknown'}"
        yield Action(Phase.TRAIN, "restart", "restart the worker", why)
    if c.node.role is NodeRole.PRIMARY:
        yield Action(Phase.TRAIN, "watch", "train until the token target, showing progress", "not finished")


def _judge_actions(c: _HostContext) -> Iterator[Action]:
    run, final = c.answer.run, c.primary_run.final_sha256
    known = c.finished and bool(final)
    if c.node.role is NodeRole.PRIMARY:
        if not known:
            yield Action(
                Phase.AGGREGATE,
                "aggregate",
                "aggregate the model",
                "after training" if not c.finished else "not there",
            )
    elif not known or run.final_sha256 != final:
        why = "after aggregation" if not known else "not there"
        yield Action(Phase.VALIDATE, "model", "receive the aggregated model", why)
    if not known or run.validated_sha256 != final:
        why = "after aggregation" if not known else "not validated here"
        yield Action(Phase.VALIDATE, "validate", "validate the aggregated model", why)
