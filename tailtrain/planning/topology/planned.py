"""The topology of a plan: kept, chosen or declared, and the choices and shares that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.choices import Choices, declared_choices
from tailtrain.planning.hardware import limits_of
from tailtrain.planning.memory import require_memory
from tailtrain.planning.shares import usable_cores
from tailtrain.planning.topology.basis import Basis, basis_of
from tailtrain.planning.topology.declared import declared_topology
from tailtrain.planning.topology.kept import kept_topology, topology_text
from tailtrain.planning.topology.offers import Way
from tailtrain.planning.topology.optimizer import optimize
from tailtrain.planning.topology.roles import shares_of
from tailtrain.spec import SWARM_TOPOLOGY_OPTIMIZER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.actions import Declared
    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.node_config import NodeLimits
    from tailtrain.planning.observed import Observation
    from tailtrain.planning.settings import Settings
    from tailtrain.planning.sourcing import Paths
    from tailtrain.planning.topology.offers import Topology

_DIGITS = 9
_TIMEOUT_FACTOR = 2.0
"""An averaging is given up no sooner than after so many times what it is predicted to take."""


@dataclass(frozen=True)
class PlannedTopology:
    """What a plan has of a topology.

    Attributes:
        topology: None where the model is divided, or a host cannot train (which the plan refuses).
        choices: how rounds and averagings go.
        text: the file that the primary keeps; empty where the optimizer did not choose it.
    """

    topology: Topology | None
    choices: Choices
    text: str = ""

    @property
    def chosen(self) -> bool:
        """Whether the optimizer chose it."""
        return bool(self.text)


def planned_topology(
    declared: Declared,
    datasets: Sequence[PlannedDataset],
    answers: Mapping[str, Observation],
    paths: Paths | None,
    run_id: str,
) -> PlannedTopology:
    """The topology for a run: the one that its primary keeps, else the best one, or that which is declared.

    Args:
        declared: nodes and settings.
        datasets: what is trained on.
        answers: of the hosts that answered.
        paths: between hosts, None where nobody looked.
        run_id: of the run at hand.

    Raises:
        DeclarationError: there is no topology for this fleet, such as where its disks cannot hold the data.
    """
    settings = declared.settings
    chosen, usual = optimizes(settings), declared_choices(settings)
    topology = _kept(declared, answers, run_id)
    if topology is None and (basis := _basis(declared, datasets, answers, paths)):
        if chosen:
            topology = optimize(basis.offers, basis.links, basis.job, basis.limits, basis.overheads)
            topology = replace(topology, guessed=basis.guessed)
        else:
            topology = declared_topology(basis, usual)
    if topology is None or not chosen:
        return PlannedTopology(topology, usual)
    return PlannedTopology(topology, _choices(topology, settings), topology_text(run_id, topology))


def weights_of(
    declared: Declared,
    datasets: Sequence[PlannedDataset],
    answers: Mapping[str, Observation],
    run_id: str,
) -> dict[str, float]:
    """What shares are in proportion to, by node in inventory order: usable cores, or as the optimizer has it.

    The optimizer's are in cores too: together they are as many as all usable ones. Paths make no difference
    to them, so they are known before the paths are.

    Args:
        declared: nodes and settings.
        datasets: what is trained on.
        answers: of the hosts that answered.
        run_id: of the run at hand.

    Raises:
        DeclarationError: the disks cannot hold the data.
    """
    cores = {node.hostname: float(usable_cores(node, declared.reserves)) for node in declared.nodes}
    if not optimizes(declared.settings):
        return cores
    kept = _kept(declared, answers, run_id)
    if kept is not None:
        shares = kept.shares
    elif basis := _basis(declared, datasets, answers, None):
        shares, _ = shares_of(basis.offers, basis.job)
    else:
        return cores
    whole = sum(cores.values())
    return {name: shares[name] * whole for name in cores}


def optimizes(settings: Settings) -> bool:
    """Whether the optimizer decides; where the model is divided, its cuts follow the speeds instead."""
    return settings.training.resource_allocation == SWARM_TOPOLOGY_OPTIMIZER and settings.data_parallel


def _kept(declared: Declared, answers: Mapping[str, Observation], run_id: str) -> Topology | None:
    primary = answers.get(declared.primary.hostname)
    if primary is None or not optimizes(declared.settings):
        return None
    names = [node.hostname for node in declared.nodes]
    return kept_topology(primary.files.get(layout.TOPOLOGY), run_id, names)


def _basis(
    declared: Declared,
    datasets: Sequence[PlannedDataset],
    answers: Mapping[str, Observation],
    paths: Paths | None,
) -> Basis | None:
    """What is known of the fleet; None where the model is divided, or where a host is refused anyway."""
    settings = declared.settings
    if not settings.data_parallel:
        return None
    limits: dict[str, NodeLimits] = {}
    try:
        for node in declared.nodes:
            name = node.hostname
            if name in answers:
                limits[name], _ = limits_of(node, declared.reserves[name], answers[name])
                require_memory(
                    name,
                    limits[name].memory_bytes,
                    settings.model,
                    settings.loop,
                    device=limits[name].device,
                )
    except DeclarationError:  # the plan of that host says it, beside what is wrong with the others
        return None
    return basis_of(declared, datasets, answers, limits, paths)


def _choices(topology: Topology, settings: Settings) -> Choices:
    """How rounds and averagings go with a topology that was chosen."""
    longest = math.ceil(_TIMEOUT_FACTOR * topology.longest_averaging)
    # Rounded, since it stands in the configuration of each of what may be a thousand nodes.
    parts = {node: round(part, _DIGITS) for node, part in topology.reducers.items()}
    equal = topology.way is Way.STAR or len(set(parts.values())) == 1
    return Choices(
        round_seconds=round(topology.prediction.training_seconds, 3),
        averaging_timeout_seconds=max(settings.loop.averaging_timeout_seconds, float(longest)),
        all_each=topology.all_each,
        compression=topology.compression.value,
        reducers={} if equal else {node: part for node, part in parts.items() if part},
    )
