"""A host of another kind of processor."""

from tests.plans.situations import Situation

SITUATION = Situation().hardware("architect", architecture="aarch64")
