"""Workers of another run are active on two hosts."""

from dataclasses import replace

from tests.plans.situations import Situation

SITUATION = Situation().applied(state="training", round_number=9, unit="active")
for _name in ("architect", "judge"):
    _run = SITUATION.answer(_name).run
    SITUATION.on(_name, run=replace(_run, run_id="feedfacefeedface", config_sha256="00" * 32))
