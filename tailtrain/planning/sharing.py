"""How the data sets are shared out among the nodes, which is the first half of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.planning.carried import owned_now, placements_of, run_id_of
from tailtrain.planning.distribution import distribution_of
from tailtrain.planning.observed import Observation
from tailtrain.planning.shares import apportion
from tailtrain.planning.topology.planned import weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.actions import Declared
    from tailtrain.planning.carried import Owned
    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.observed import Observed
    from tailtrain.planning.placement import Placement
    from tailtrain.planning.plan import Material
    from tailtrain.planning.sourcing import Delivery


@dataclass(frozen=True)
class Shares:
    """Who has which part of the work.

    Attributes:
        weights: of each node, in inventory order.
        quotas: by domain, the records of each node.
        owned: by domain, the rows that hosts have now.
        placements: by domain, the rows that each node is to have.
    """

    weights: Mapping[str, float]
    quotas: Mapping[str, Mapping[str, int]]
    owned: Mapping[str, Owned]
    placements: Mapping[str, Placement]


def shares_of(
    declared: Declared,
    datasets: Sequence[PlannedDataset],
    answers: Mapping[str, Observation],
    run_id: str,
) -> Shares:
    """Share the data sets out: in proportion to usable cores, or as the optimizer has it.

    What is in place stays there, as far as the shares allow.

    Raises:
        DeclarationError: the nodes keep all their cores for themselves, or have no room for the data.
    """
    settings, nodes = declared.settings, declared.nodes
    weights = weights_of(declared, datasets, answers, run_id)
    quotas = {
        dataset.domain: dict(
            zip(weights, apportion(dataset.train_records, list(weights.values())), strict=True)
        )
        if settings.shares_data
        else dict.fromkeys(weights, dataset.train_records)
        for dataset in datasets
    }
    owned = owned_now(settings, nodes, datasets, answers)
    return Shares(weights, quotas, owned, placements_of(settings, nodes, datasets, quotas, owned))


def coming_to(
    declared: Declared, datasets: Sequence[PlannedDataset], material: Material, observed: Observed
) -> dict[str, tuple[Delivery, ...]]:
    """What each host would get from where if all paths were direct; only hosts that get anything are named.

    It tells whose paths have to be known for the plan itself.

    Raises:
        DeclarationError: as `shares_of`.
    """
    answers = {name: answer for name, answer in observed.items() if isinstance(answer, Observation)}
    run_id = run_id_of(declared.settings, datasets, material, declared.nodes, answers)
    shares = shares_of(declared, datasets, answers, run_id)
    found = distribution_of(declared.settings, shares.weights, datasets, shares.placements, answers, None)
    return {name: deliveries for name, deliveries in found.deliveries.items() if deliveries}
