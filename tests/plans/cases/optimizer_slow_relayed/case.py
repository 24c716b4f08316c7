"""One node is behind a relay, and averagings with it took long: weights travel compressed."""

from tests.plans.situations import NAMES, Situation

SITUATION = Situation().optimized()
for name in NAMES:
    SITUATION = SITUATION.measured(name, 4_000.0, bytes_per_second=0.29e6, averaging_seconds=20.0)
SITUATION = SITUATION.on("judge", path="relayed via fra")
