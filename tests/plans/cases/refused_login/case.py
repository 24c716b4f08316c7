"""A login user without root."""

from tests.plans.situations import Situation

SITUATION = Situation().on("architect", superuser=False)
