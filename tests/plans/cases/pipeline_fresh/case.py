"""Six hosts with nothing on them are to hold a stage of the model each."""

from tests.plans.situations import Situation

SITUATION = (
    Situation()
    .with_settings(
        distribution_strategy="pipelineParallel",
        coordination_protocol="centralized",
        model={"layers": 12, "width": 256, "heads": 8, "context": 256},
        training={"batch_size": 32},
        engine={"microbatches": 8},
    )
    .round_trips(0.004)
)
