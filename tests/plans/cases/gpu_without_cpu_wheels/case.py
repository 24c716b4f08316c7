"""No CPU build of torch at hand: all hosts get the lock that serves both."""

from dataclasses import replace

from tests.plans.situations import MATERIAL, Situation

SITUATION = Situation(material=replace(MATERIAL, cpu_build_at_hand=False))
