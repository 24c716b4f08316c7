"""A host does not answer, and nobody ever heard of it."""

from tests.plans.situations import Situation

SITUATION = Situation().unreachable("judge", "no answer within 10 s from 100.64.0.4:22")
