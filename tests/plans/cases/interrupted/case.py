"""The run was stopped on all nodes at round 7."""

from tests.plans.situations import Situation

SITUATION = Situation().applied(state="stopped", round_number=7)
