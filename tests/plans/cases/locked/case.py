"""Somebody is deploying at this moment."""

from tailtrain.planning.observed import LockHolder
from tests.plans.situations import PRIMARY, Situation

HOLDER = LockHolder("1f2e3d4c", "ana@desk", "2026-11-02T09:30:00Z", "b7d77e87c3e6")
SITUATION = (
    Situation().applied(state="training", unit="active").on(PRIMARY, lock=HOLDER).unit("judge", "failed")
)
