"""A host that left the inventory and is offline: it stays remembered."""

from tailtrain.planning.departed import DepartedFound
from tailtrain.planning.receipt import Login
from tests.plans.situations import SEVENTH, Situation

SITUATION = Situation().add(SEVENTH).applied().remove(SEVENTH.hostname)
SITUATION.departed = (
    DepartedFound(SEVENTH.hostname, Login(), unreachable="offline since 2026-11-01 08:00 UTC"),
)
