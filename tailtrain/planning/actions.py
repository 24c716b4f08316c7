"""From what is declared and observed to the plan of the fleet; `host_plan` makes that of each host."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tailtrain.planning.carried import (
    least_moved,
    peers_of,
    records_moved,
    run_id_of,
)
from tailtrain.planning.departed import DepartedFound, departed_plan
from tailtrain.planning.distribution import distribution_of
from tailtrain.planning.division.node_config import sharded_document
from tailtrain.planning.division.planned import planned_division
from tailtrain.planning.division.stage_nodes import kept_nodes
from tailtrain.planning.hardware import require_supported
from tailtrain.planning.host_plan import Fleet, plan_of_host
from tailtrain.planning.node_config import spans_of
from tailtrain.planning.observed import LockHolder, Observation, Observed, RunState
from tailtrain.planning.parts import ACTION_ORDER, Action, Phase
from tailtrain.planning.plan import DepartedHost, HostPlan, Material, Plan, digest, quorum_of
from tailtrain.planning.shares import q16_weights
from tailtrain.planning.sharing import shares_of
from tailtrain.planning.topology.planned import planned_topology
from tailtrain.spec import NetworkNode, NodeReserve, NodeRole
from tailtrain.spec.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.division.planned import RoundTrips
    from tailtrain.planning.receipt import Login
    from tailtrain.planning.settings import Settings
    from tailtrain.planning.sourcing import Paths
    from tailtrain.planning.storage_plan import PlannedStorage
    from tailtrain.planning.templates import Templates


@dataclass(frozen=True)
class Declared:
    """What a person declared: nodes in inventory order, what they keep for themselves, logins, settings."""

    nodes: tuple[NetworkNode, ...]
    reserves: Mapping[str, NodeReserve]
    settings: Settings
    logins: Mapping[str, Login] = field(default_factory=dict)

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
    departed: Sequence[DepartedFound] = (),
    *,
    storage: PlannedStorage | None = None,
    paths: Paths | None = None,
    gossip_key: bytes = b"",
    round_trips: RoundTrips | None = None,
) -> Plan:
    """The plan for a fleet; the same inputs always give the same plan.

    Args:
        declared: nodes and settings.
        datasets: what the manifests say.
        material: ids of code and environment.
        templates: the project's Jinja templates.
        observed: one answer, or the reason for none, of each node.
        new_peer_ids: for nodes that have no identity yet, the id of the one they will be given.
        departed: hosts that have something of this fleet's, and are not declared any more.
        storage: the backend that the settings name, None where the control machine sends.
        paths: between hosts; None where they have not been looked at, and all count as direct.
        gossip_key: the fleet's, where Serf holds the membership.
        round_trips: between nodes; None where the plan does not depend on them.

    Raises:
        DeclarationError: naming every host about which something does not fit, before anything is changed.
    """
    settings, nodes = declared.settings, declared.nodes
    answers = {name: answer for name, answer in observed.items() if isinstance(answer, Observation)}
    problems = Problems()
    for node in nodes:
        if node.hostname in answers:
            with problems.gathered():
                require_supported(node, answers[node.hostname])
    run_id = run_id_of(settings, datasets, material, nodes, answers)
    shares = shares_of(declared, datasets, answers, run_id)
    topology = planned_topology(declared, datasets, answers, paths, run_id)
    quotas, placements = shares.quotas, shares.placements
    primary = answers.get(declared.primary.hostname)
    everyone = len(answers) == len(nodes)
    leaving = [departed_plan(found, everyone=everyone) for found in departed]
    peers, division = peers_of(settings, nodes, answers, new_peer_ids), None
    # A deterministic run waits for everybody: who is in an averaging decides what comes out of it.
    tolerant = settings.training.fault_tolerance and not settings.engine.deterministic
    quorum = quorum_of(len(nodes)) if tolerant else len(nodes)
    with problems.gathered():
        kept = kept_nodes(primary, run_id)
        division = planned_division(declared, peers, answers, kept, round_trips)
    fleet = Fleet(
        nodes=nodes,
        reserves=declared.reserves,
        settings=settings,
        datasets=datasets,
        material=material,
        templates=templates,
        run_id=run_id,
        peers=peers,
        quotas=quotas,
        placements=placements,
        spans={dataset.domain: spans_of(dataset, placements[dataset.domain]) for dataset in datasets}
        if settings.shares_data
        else {},
        data=distribution_of(settings, shares.weights, datasets, placements, answers, paths),
        storage=storage,
        topology=topology,
        quorum=quorum,
        sharded=sharded_document(settings, division, peers, quorum) if division else None,
        primary_run=primary.run if primary else RunState(),
        everyone=everyone,
        logins={**declared.logins, **{host.name: host.login for host in leaving if host.remembered}},
        gossip_key=gossip_key,
    )
    hosts = []
    for node, share in zip(nodes, q16_weights(list(shares.weights.values())), strict=True):
        answer = observed[node.hostname]
        with problems.gathered():
            hosts.append(
                plan_of_host(fleet, node, answer, share.raw)
                if isinstance(answer, Observation)
                else HostPlan(
                    node=node,
                    unreachable=answer.reason,
                    share=share.raw,
                    quotas={domain: quota[node.hostname] for domain, quota in quotas.items()},
                )
            )
    problems.raise_if_any()
    hosts = [_with_report(host, hosts) for host in hosts]
    hosts = [_with_receipt(host) for host in hosts]
    basis = {
        "run": fleet.run_id,
        "hosts": [*map(_basis, hosts), *map(_departed_basis, leaving)],
        "uploads": sorted(storage.uploads or ()) if storage else [],
    }
    return Plan(
        id=digest(basis)[:12],
        run_id=fleet.run_id,
        run_state=fleet.primary_run.state if fleet.primary_run.run_id == fleet.run_id else "",
        trained=fleet.primary_run.trained if fleet.primary_run.run_id == fleet.run_id else None,
        settings=settings,
        datasets=tuple(datasets),
        placements=fleet.placements,
        moved=records_moved(fleet.placements, shares.owned, answers),
        least_moved=least_moved(quotas, shares.owned, answers) if settings.shares_data else {},
        material=material,
        hosts=tuple(hosts),
        quorum=fleet.quorum,
        division=division,
        departed=tuple(leaving),
        lock=_holder(answers, departed),
        deploys=primary.deploys if primary else 0,
        storage=storage,
        topology=topology,
    )


def _holder(answers: Mapping[str, Observation], departed: Sequence[DepartedFound]) -> LockHolder | None:
    """Who deploys: with the primary, or with a host that was it before the inventory named another one."""
    locks = [answer.lock for answer in answers.values()] + [found.lock for found in departed]
    return next((lock for lock in locks if lock), None)


def _with_report(host: HostPlan, hosts: Sequence[HostPlan]) -> HostPlan:
    """The primary writes the report whenever anybody validates."""
    if host.node.role is not NodeRole.PRIMARY or host.unreachable:
        return host
    if not any(other.does("validate") for other in hosts):
        return host
    report = Action(Phase.VALIDATE, "judge", "compare with both baselines, report", "after validation")
    actions = sorted((*host.actions, report), key=lambda action: ACTION_ORDER.index(action.key))
    return replace(host, actions=tuple(actions))


def _with_receipt(host: HostPlan) -> HostPlan:
    """A receipt is written last where it would say something else than the one that is there."""
    new, old = host.receipt, host.old_receipt
    if new is None or new.says_the_same_as(old):
        return host
    forgotten = sorted(old.fleet.keys() - new.fleet.keys()) if old else []
    why = f"forgets {', '.join(forgotten)}" if forgotten else "says what was applied"
    return replace(host, actions=(*host.actions, Action(Phase.CLEAN, "receipt", "write the receipt", why)))


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
        # Not what is tried where the first source fails: that changes with paths that this plan does not use.
        [[delivery.chunk.sha256, delivery.wave, delivery.sources[0]] for delivery in host.deliveries],
        list(host.manifests),
        [list(removal.paths) for removal in host.removals],
    ]


def _departed_basis(host: DepartedHost) -> list[object]:
    return [host.name, host.unreachable, [[action.key, action.what, action.why] for action in host.actions]]
