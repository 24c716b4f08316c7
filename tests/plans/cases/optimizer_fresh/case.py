"""The optimizer plans a first run: no host has measured anything, so speeds are guessed by cores."""

from tests.plans.situations import Situation

SITUATION = Situation().optimized()
