"""A seventh host after a finished run: a new run, few chunks move."""

from tests.plans.situations import SEVENTH, Situation

SITUATION = Situation().applied().add(SEVENTH)
