"""One host gives way more than before: that host alone is restarted."""

from tailtrain.spec import NodeReserve
from tests.plans.situations import Situation

SITUATION = Situation().applied(state="training", round_number=5, unit="active")
SITUATION.reserves["judge"] = NodeReserve(nice=19)
