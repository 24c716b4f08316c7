"""Which strategy runs under which coordination in this version.

The table is DESIGN's map of engines. A cell that does not train yet is refused when the plan is made, by
name, together with the nearest setting that works.
"""

from __future__ import annotations

from tailtrain.errors import UnsupportedError
from tailtrain.spec import CoordinationProtocol, DistributionStrategy, TrainingConfiguration

RUNNABLE = {
    (DistributionStrategy.DATA_PARALLEL, CoordinationProtocol.DECENTRALIZED),
    (DistributionStrategy.DATA_PARALLEL, CoordinationProtocol.CENTRALIZED),
    (DistributionStrategy.DATA_PARALLEL, CoordinationProtocol.ENE_GOSSIP),
}

_ONE_ORDER = (
    "its ranks need one agreed order, and no decentralized trainer of this kind is maintained; "
    "this cell stays refused"
)


def require_runnable(training: TrainingConfiguration) -> None:
    """Refuse what this version cannot carry out.

    Raises:
        UnsupportedError: naming the setting, its value and the nearest one that works.
    """
    strategy, protocol = training.distribution_strategy, training.coordination_protocol
    if (strategy, protocol) not in RUNNABLE:
        never = (
            strategy is not DistributionStrategy.DATA_PARALLEL
            and protocol is CoordinationProtocol.DECENTRALIZED
        )
        raise UnsupportedError(
            _ONE_ORDER if never else "this cell of the engine table does not train in this version",
            field="distribution_strategy, coordination_protocol",
            found=f"{strategy.value} with {protocol.value}",
            expected="dataParallel with decentralized or centralized",
            fix='Set distribution_strategy = "dataParallel" and coordination_protocol = "decentralized"'
            " in group_data/all.py",
        )
    for field, found, works in (
        ("resource_allocation", training.resource_allocation, "declared_cores"),
        ("load_balancing", training.load_balancing, "static"),
    ):
        if found != works:
            raise UnsupportedError(
                "known to the specification, but not carried out in this version",
                field=field,
                found=found,
                expected=works,
                fix=f'Set {field} = "{works}" in group_data/all.py',
            )
