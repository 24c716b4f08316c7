"""Which strategy runs under which coordination: DESIGN's map of engines.

Two of its nine cells are refused, when the plan is made: by name, with the reason and the nearest setting
that works. What depends on the fleet (round trips, speeds, memory, heads) is looked at in `division`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.errors import UnsupportedError
from tailtrain.spec import CoordinationProtocol, DistributionStrategy

if TYPE_CHECKING:
    from tailtrain.planning.settings import Settings


def require_runnable(settings: Settings) -> None:
    """Refuse what cannot be carried out.

    Raises:
        UnsupportedError: naming the setting, its value and the nearest one that works.
    """
    training = settings.training
    strategy, protocol = training.distribution_strategy, training.coordination_protocol
    if not settings.data_parallel and protocol is CoordinationProtocol.DECENTRALIZED:
        raise UnsupportedError(
            f"{strategy.value} needs one agreed order of its ranks and one place where they meet, "
            "which decentralized coordination does not have",
            field="distribution_strategy, coordination_protocol",
            found=f"{strategy.value} with {protocol.value}",
            expected=f"{strategy.value} with eneGossip or centralized, or dataParallel",
            fix='Set coordination_protocol = "eneGossip" in group_data/all.py: it replaces the meeting place'
            " when its node is lost",
        )
    exact = (DistributionStrategy.DATA_PARALLEL, CoordinationProtocol.CENTRALIZED)
    if settings.engine.deterministic and (strategy, protocol) != exact:
        raise UnsupportedError(
            "runs are the same to the bit only where one node adds up whole models in a fixed order",
            field="engine.deterministic",
            found=f"True with {strategy.value} and {protocol.value}",
            expected="dataParallel and centralized",
            fix='Set coordination_protocol = "centralized" and distribution_strategy = "dataParallel" in'
            " group_data/all.py, or leave deterministic out",
        )
