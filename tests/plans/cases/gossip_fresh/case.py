"""Six hosts with nothing on them, one of them with Serf's package, whose membership Serf is to hold."""

from tests.plans.situations import NAMES, Situation

SITUATION = Situation().with_settings(coordination_protocol="eneGossip")
for name in NAMES[1:]:
    SITUATION.on(name, missing_packages=("python3-venv", "serf"))
