"""One node found the model no better than a baseline: that is looked at again, not called unchanged."""

from dataclasses import replace

from tests.plans.situations import Situation

SITUATION = Situation().applied()
SITUATION.on("judge", run=replace(SITUATION.answer("judge").run, learned=False))
