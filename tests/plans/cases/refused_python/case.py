"""Another Python than the lock's."""

from tests.plans.situations import Situation

SITUATION = Situation().hardware("architect", python="3.13")
