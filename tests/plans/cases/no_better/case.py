"""One node has not validated the model yet."""

from dataclasses import replace

from tests.plans.situations import Situation

SITUATION = Situation().applied()
SITUATION.on("judge", run=replace(SITUATION.answer("judge").run, learned=False))
