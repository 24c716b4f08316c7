"""Each chunk is with one node alone: no copies."""

from tests.plans.situations import Situation

SITUATION = Situation().with_settings(replicas=1)
