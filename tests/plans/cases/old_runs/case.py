"""More runs than the rule allows, an old environment, and chunks of a data set that is declared no more."""

from tailtrain.planning import layout
from tailtrain.planning.observed import StoredFolder, StoredRun
from tests.plans.situations import NAMES, Situation

SITUATION = Situation().applied()
RUNS = tuple(StoredRun(f"{number:016x}", "finished", 40_000_000, float(number)) for number in range(1, 5))
for name in NAMES:
    SITUATION.on(name, runs=RUNS)
SITUATION.on(
    "judge",
    stored=(
        StoredFolder(layout.ENVIRONMENT_DIR, SITUATION.material.locks["worker-cpu"], 0),
        StoredFolder(layout.ENVIRONMENT_DIR, "e000000000000002", 0),
        StoredFolder(layout.ENVIRONMENT_DIR, "e000000000000001", 712_000_000),
    ),
    stray_chunks={"f" * 64: 300_000},
)
