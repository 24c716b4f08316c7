"""A host does not answer after a finished run."""

from tests.plans.situations import Situation

SITUATION = Situation().applied().unreachable("judge", "no answer within 10 s from 100.64.0.4:22")
