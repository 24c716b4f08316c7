"""Lab hosts emulate the hardware that is declared."""

from tests.plans.situations import NAMES, Situation

SITUATION = Situation()
for _name in NAMES:
    SITUATION.on(_name, emulated=True).hardware(
        _name,
        cores=2,
        usable_cores=SITUATION.answer(_name).hardware.cores / 20,
        memory_bytes=4 * 2**30,
        gpus=(),
    )
