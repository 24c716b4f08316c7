"""The plan of one host that answered: its configuration, what it lacks, what changed there, what may go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.carried import moves_of
from tailtrain.planning.division.node_config import config_digest, on_cpu
from tailtrain.planning.drift import drift_of, sha256_of
from tailtrain.planning.hardware import GIB, limits_of, needed_space, require_disk
from tailtrain.planning.memory import require_memory
from tailtrain.planning.node_config import unit_values, worker_document
from tailtrain.planning.parts import FileChange, Preflight, counted
from tailtrain.planning.plan import HostPlan, Material
from tailtrain.planning.pruning import removals_of
from tailtrain.planning.receipt import Receipt
from tailtrain.planning.serf_plan import missing_packages, serf_plan
from tailtrain.planning.work import HostContext, actions_of, sources_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.distribution import Distribution
    from tailtrain.planning.node_config import FleetSpans, NodeLimits, Peer
    from tailtrain.planning.observed import Observation, RunState
    from tailtrain.planning.placement import Placement
    from tailtrain.planning.receipt import Login
    from tailtrain.planning.serf_plan import SerfPlan
    from tailtrain.planning.settings import Settings
    from tailtrain.planning.storage_plan import PlannedStorage
    from tailtrain.planning.templates import Templates
    from tailtrain.planning.topology.planned import PlannedTopology
    from tailtrain.spec import NetworkNode, NodeReserve

# Bytes per second until a transfer was measured. Direct, and between nodes or from a backend: a slow home's
# 100 Mbit/s. Relayed: what users of Tailscale's relays report, tailscale/tailscale#14661.
_ASSUMED_RATE = {"local": 100e6, "direct": 12e6, "relayed": 1e6}
_SLOWEST_ASSUMED = 1e6


@dataclass(frozen=True)
class Fleet:
    """What is the same for every host of a plan.

    `everyone` says that all declared hosts answered; `logins` names every host that has something of ours.
    `sharded` is what `sharded.json` says, where the model is divided.
    `gossip_key` is the fleet's, empty where Serf is not used.
    """

    nodes: Sequence[NetworkNode]
    reserves: Mapping[str, NodeReserve]
    settings: Settings
    datasets: Sequence[PlannedDataset]
    material: Material
    templates: Templates
    run_id: str
    peers: Sequence[Peer]
    quotas: Mapping[str, Mapping[str, int]]
    placements: Mapping[str, Placement]
    spans: Mapping[str, FleetSpans]
    data: Distribution
    storage: PlannedStorage | None
    topology: PlannedTopology
    quorum: int
    primary_run: RunState
    everyone: bool
    logins: Mapping[str, Login]
    sharded: Mapping[str, object] | None
    gossip_key: bytes = field(repr=False)

    @property
    def finished(self) -> bool:
        """Whether the primary has finished this run."""
        return self.primary_run.run_id == self.run_id and self.primary_run.state == "finished"


def plan_of_host(fleet: Fleet, node: NetworkNode, answer: Observation, share: int) -> HostPlan:
    """What will be done to a host that answered.

    Raises:
        DeclarationError: naming the host: it cannot hold or do what it should, or a template fails for it.
    """
    name = node.hostname
    limits, notes = limits_of(node, fleet.reserves[name], answer)
    settings = fleet.settings
    if settings.data_parallel:
        require_memory(name, limits.memory_bytes, settings.model, settings.loop, device=limits.device)
    else:
        limits, notes = on_cpu(limits, notes)
    lock = fleet.material.lock_for(limits.device, answer.environments)
    me = next(peer for peer in fleet.peers if peer.node == name)
    serf = serf_plan(settings, me, fleet.peers, limits, fleet.gossip_key)
    texts = _texts(fleet, me, answer, lock, limits, serf)
    config_sha256 = config_digest(texts)
    files = tuple(
        change
        for change in texts
        if change.before != change.after
        or answer.modes.get(change.path, change.mode_and_owners) != change.mode_and_owners
    )
    wanted, chunks = fleet.data.wanted[name], fleet.data.lacking[name]
    wanted_names = frozenset(chunk.sha256 for chunk in wanted)
    deliveries = fleet.data.deliveries[name]
    manifests = tuple(d.manifest_id for d in fleet.datasets if d.manifest_id not in answer.manifests)
    require_disk(node, answer, wanted, chunks)
    removals = tuple(
        removals_of(
            answer,
            run_id=fleet.run_id,
            keep_runs=fleet.settings.keep_runs,
            in_use={
                layout.ENVIRONMENT_DIR: fleet.material.locks[lock],
                layout.CODE_DIR: fleet.material.code_id,
            },
            wanted_chunks=wanted_names,
            everyone=fleet.everyone,
            datasets=fleet.datasets,
            sizes=fleet.data.sizes,
        )
    )
    copies = fleet.data.copies.get(name, frozenset())
    moves = tuple(moves_of(fleet.datasets, fleet.quotas, name, answer, chunks, copies))
    sources = tuple(sources_of(deliveries, fleet.storage))
    context = HostContext(
        node=node,
        answer=answer,
        material=fleet.material,
        lock=lock,
        run_id=fleet.run_id,
        config_sha256=config_sha256,
        files=files,
        deliveries=deliveries,
        sources=sources,
        manifests=manifests,
        moves=moves,
        removals=removals,
        storage=fleet.storage,
        finished=fleet.finished,
        primary_run=fleet.primary_run,
        serf=serf,
        protocol=settings.training.coordination_protocol.value,
    )
    sent = sum(delivery.chunk.bytes for delivery in deliveries if delivery.sent)
    fetched = sum(chunk.bytes for chunk in chunks) - sent
    rate, where_from = _rate(answer)
    speeds = [_speed(rate, where_from)] if sent else []
    speeds += [_speed(_ASSUMED_RATE["direct"], "assumed")] if fetched else []
    actions = tuple(actions_of(context))
    keys = {action.key for action in actions}
    return HostPlan(
        node=node,
        path=answer.path,
        emulated=answer.emulated,
        share=share,
        quotas={domain: quota[name] for domain, quota in fleet.quotas.items()},
        limits=limits,
        lock=lock,
        notes=notes,
        actions=actions,
        missing_packages=missing_packages(answer, serf),
        files=files,
        chunks=chunks,
        deliveries=deliveries,
        sources=sources,
        manifests=manifests,
        config_sha256=config_sha256,
        preflight=_preflight(node, answer, needed_space(chunks)),
        drift=tuple(drift_of(node, answer, texts, fleet.data.sizes, serf)),
        moves=moves,
        seconds_to_send=sent / rate + fetched / _ASSUMED_RATE["direct"],
        send_rate=", ".join(dict.fromkeys(speeds)),
        interrupts=_interrupted(answer, fleet.run_id) if "restart" in keys else "",
        goes_on=not fleet.finished and not keys & {"start", "restart"},
        removals=removals,
        wanted_chunks=wanted_names,
        receipt=_receipt(fleet, name, answer, texts, lock, serf),
        old_receipt=answer.receipt,
        serf=serf,
    )


def _texts(
    fleet: Fleet, me: Peer, answer: Observation, lock: str, limits: NodeLimits, serf: SerfPlan | None
) -> tuple[FileChange, ...]:
    """All text files that a host should have, whether or not it has them so."""
    name = me.node
    document = worker_document(
        run_id=fleet.run_id,
        me=me,
        peers=fleet.peers,
        quorum=fleet.quorum,
        limits=limits,
        settings=fleet.settings,
        datasets=fleet.datasets,
        placements=fleet.placements,
        spans=fleet.spans,
        rclone=layout.rclone(fleet.material.locks[lock]),
        storage=fleet.storage,
        choices=fleet.topology.choices,
        code=fleet.material.code_id,
    )
    config = fleet.templates.render_worker(name, document)
    wanted = [(layout.CONFIG, "0640", layout.ACCOUNT, config)]
    if fleet.sharded:
        text = fleet.templates.render_document("sharded.json", name, fleet.sharded)
        wanted.append((layout.SHARDED_CONFIG, "0640", layout.ACCOUNT, text))
    if me.role == "primary" and fleet.topology.text:
        wanted.append((layout.TOPOLOGY, "0640", layout.ACCOUNT, fleet.topology.text))
    if fleet.storage and fleet.storage.ca_text is not None:
        wanted.append((layout.STORAGE_CA, "0644", "root", fleet.storage.ca_text))
    values = unit_values(fleet.material, lock, limits, fleet.settings, me, fleet.peers)
    values["serf_digest"] = serf.digest if serf else ""
    for unit in layout.units(gossips=fleet.settings.gossips):
        text = fleet.templates.render_unit(unit, name, values)
        wanted.append((f"{layout.UNIT_DIR}/{unit}", "0644", "root", text))
    return tuple(
        FileChange(path, mode, group, answer.files.get(path), text) for path, mode, group, text in wanted
    )


def _rate(answer: Observation) -> tuple[float, str]:
    """Bytes per second to a host, and where that is from."""
    if answer.receipt and answer.receipt.bytes_per_second:
        return answer.receipt.bytes_per_second, "measured by the last transfer"
    kind = answer.path.partition(" ")[0]
    return _ASSUMED_RATE.get(kind, _SLOWEST_ASSUMED), "assumed"


def _speed(rate: float, where_from: str) -> str:
    return f"{rate / 1e6:.0f} MB/s {where_from}"


def _preflight(node: NetworkNode, answer: Observation, needed: int) -> Preflight:
    found = answer.hardware
    return Preflight(
        key_expires=answer.tailnet.key_expires,
        key_days=answer.tailnet.key_days,
        disk_free_bytes=found.disk_free_bytes,
        disk_needed_bytes=needed,
        clock_skew_seconds=found.clock_skew_seconds,
        declared=f"{counted(node.cores, 'core')}, {node.ram_gb} GB, {_gpus(int(node.has_gpu))}",
        found=(
            f"{counted(found.cores, 'core')}, {found.memory_bytes / GIB:.1f} GiB, {_gpus(len(found.gpus))}"
        ),
        warnings=answer.tailnet.warnings,
    )


def _gpus(number: int) -> str:
    return counted(number, "GPU") if number else "no GPU"


def _interrupted(answer: Observation, run_id: str) -> str:
    """What a restart of the worker cuts short, or what it gives up."""
    run = answer.run
    if not run.run_id or run.state in ("", "finished", "failed"):
        return ""
    where = f"round {max(run.round, 0)}" + ("" if run.trained is None else f", {run.trained:.0%} trained")
    if run.run_id == run_id:
        return f"run {run.run_id} in {where}: it loses what it trained since its last averaging"
    return f"run {run.run_id} in {where}: it is given up, its files stay; run {run_id} starts untrained"


def _receipt(
    fleet: Fleet,
    name: str,
    answer: Observation,
    texts: Sequence[FileChange],
    lock: str,
    serf: SerfPlan | None,
) -> Receipt:
    """What the host's receipt should say when all is done; who and when is filled in on writing."""
    secrets = {file.path: file.sha256 for file in serf.files} if serf else {}
    return Receipt(
        plan="",
        run=fleet.run_id,
        by="",
        at="",
        files={change.path: sha256_of(change.after) for change in texts} | secrets,
        code=fleet.material.code_id,
        environment=fleet.material.locks[lock],
        peer_id=next(peer.peer_id for peer in fleet.peers if peer.node == name),
        cores=answer.hardware.cores,
        memory_bytes=answer.hardware.memory_bytes,
        gpus=len(answer.hardware.gpus),
        fleet=fleet.logins,
        bytes_per_second=answer.receipt.bytes_per_second if answer.receipt else 0.0,
    )
