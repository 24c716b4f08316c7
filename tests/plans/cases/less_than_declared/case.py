"""Fewer cores, less memory and no GPU are found: found counts, and is said."""

from tests.plans.situations import GIB, PRIMARY, Situation

SITUATION = Situation().hardware(PRIMARY, cores=4, usable_cores=4.0, gpus=(), memory_bytes=15 * GIB)
