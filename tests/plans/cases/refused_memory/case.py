"""A model that two of the six hosts cannot hold."""

from tests.plans.situations import Situation

SITUATION = Situation().with_settings(model={"layers": 12, "width": 640, "heads": 10, "context": 256})
