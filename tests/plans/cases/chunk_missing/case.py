"""A chunk was removed from a host after the run."""

from tailtrain.planning.carried import chunks_on
from tests.plans.situations import Situation

SITUATION = Situation().applied()
_LOST = min(chunks_on(SITUATION.answer("judge")))
SITUATION.on("judge", chunks=SITUATION.answer("judge").chunks - {_LOST})
