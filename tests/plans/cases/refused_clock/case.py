"""A clock that is 40 seconds slow."""

from tests.plans.situations import Situation

SITUATION = Situation().hardware("architect", clock_skew_seconds=-40.2)
