"""With eneGossip and one slow link the nodes average in pairs, and all together now and then."""

from tests.plans.situations import NAMES, Situation

SITUATION = Situation().optimized().with_settings(coordination_protocol="eneGossip", engine={"all_each": 4})
for name in NAMES:
    SITUATION = SITUATION.measured(name, 4_000.0, bytes_per_second=0.29e6, averaging_seconds=20.0)
