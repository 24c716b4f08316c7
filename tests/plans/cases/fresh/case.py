"""Six hosts with nothing on them."""

from tests.plans.situations import Situation

SITUATION = Situation()
