"""Parts of each layer on hosts that are too far from each other."""

from tests.plans.situations import Situation

SITUATION = (
    Situation()
    .with_settings(
        distribution_strategy="modelParallel",
        coordination_protocol="centralized",
        model={"layers": 4, "width": 192, "heads": 12},
    )
    .round_trips(0.03)
)
