"""Somebody stopped the worker on one host while the others train."""

from tests.plans.situations import Situation

SITUATION = (
    Situation().applied(state="training", round_number=11, unit="active").unit("architect", "inactive")
)
