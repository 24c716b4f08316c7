"""The worker's code changed while a run was under way: that is another run."""

from dataclasses import replace

from tests.plans.situations import MATERIAL, Situation

SITUATION = Situation().applied(state="training", round_number=9, unit="active")
SITUATION.material = replace(MATERIAL, code_id="c0de000000000002")
