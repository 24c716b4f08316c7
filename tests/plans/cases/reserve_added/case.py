"""One host's owner keeps two cores from now on: files differ there alone; with --diff."""

from tailtrain.spec import NodeReserve
from tests.plans.situations import Situation

SITUATION = Situation().applied(state="training", round_number=3, unit="active").shown_diff()
SITUATION.reserves["architect"] = NodeReserve(ram_gb=4, nice=15)
