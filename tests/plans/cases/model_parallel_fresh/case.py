"""Six unequal hosts are to hold a part of each layer, although that is slow over such links."""

from tests.plans.situations import Situation

SITUATION = (
    Situation()
    .with_settings(
        distribution_strategy="modelParallel",
        coordination_protocol="centralized",
        model={"layers": 4, "width": 192, "heads": 12},
        engine={"allow_wan": True},
    )
    .round_trips(0.03)
)
