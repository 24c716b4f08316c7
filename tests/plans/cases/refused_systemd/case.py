"""A host without systemd."""

from tests.plans.situations import Situation

SITUATION = Situation().hardware("architect", systemd=False)
