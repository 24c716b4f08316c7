"""A seventh host while a run is under way: the same run goes on with it."""

from tests.plans.situations import SEVENTH, Situation

SITUATION = Situation().applied(state="training", round_number=5, unit="active").add(SEVENTH)
