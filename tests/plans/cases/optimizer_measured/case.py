"""A second run: hosts have measured their speeds, of which one is far below what its cores promise."""

from tests.plans.situations import NAMES, Situation

SPEEDS = (9_100.0, 7_400.0, 800.0, 1_900.0, 4_000.0, 2_050.0)
SITUATION = Situation().optimized(learning_rate=0.002)
for name, speed in zip(NAMES, SPEEDS, strict=True):
    SITUATION = SITUATION.measured(name, speed)
