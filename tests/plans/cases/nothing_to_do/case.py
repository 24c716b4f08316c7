"""Everything is finished and validated."""

from tests.plans.situations import Situation

SITUATION = Situation().applied()
