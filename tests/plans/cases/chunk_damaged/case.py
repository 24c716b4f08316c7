"""A chunk's bytes changed on a host after the run."""

from tailtrain.planning.carried import chunks_on
from tests.plans.situations import Situation

SITUATION = Situation().applied()
_HURT = min(chunks_on(SITUATION.answer("judge")))
SITUATION.on(
    "judge",
    chunks=SITUATION.answer("judge").chunks - {_HURT},
    damaged={_HURT: "its bytes are not those of its name"},
)
