"""A host whose disk is nearly full."""

from tests.plans.situations import Situation

SITUATION = Situation().hardware("architect", disk_free_bytes=200_000_000)
