"""Without fault tolerance the gate asks for every node."""

from tests.plans.situations import Situation

SITUATION = Situation().with_settings(fault_tolerance=False)
