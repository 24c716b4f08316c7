"""After a run the hosts have measured, and a path goes over a relay now: the run's topology stays."""

from tests.plans.situations import NAMES, Situation

SITUATION = Situation().optimized().applied()
for name in NAMES:
    SITUATION = SITUATION.measured(name, 100.0, averaging_seconds=20.0)
SITUATION = SITUATION.on("judge", path="relayed via fra").path("qfox", "judge", "relayed")
