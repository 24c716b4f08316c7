"""No host can be reached."""

from tests.plans.situations import NAMES, Situation

SITUATION = Situation()
for name in NAMES:
    SITUATION.unreachable(name, "no answer within 10 s")
