"""A chunk was removed from a host after the run."""

from tests.plans.situations import Situation

SITUATION = Situation().applied()
_LOST = min(SITUATION.answer("judge").chunks)
SITUATION.on("judge", chunks=SITUATION.answer("judge").chunks - {_LOST})
