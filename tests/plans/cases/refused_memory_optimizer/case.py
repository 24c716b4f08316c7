"""A node whose memory cannot hold model and optimiser is refused by name, whoever shares out the work."""

from tests.plans.situations import Situation

SITUATION = (
    Situation().optimized().with_settings(model={"layers": 12, "width": 768, "heads": 12, "context": 256})
)
