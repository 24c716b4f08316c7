"""Changed outside: a file edited, a worker stopped, a chunk damaged, memory taken out."""

from tailtrain.planning import layout
from tailtrain.planning.carried import chunks_on
from tests.plans.situations import GIB, Situation

UNIT = f"{layout.UNIT_DIR}/{layout.WORKER_UNIT}"
SITUATION = Situation().applied(state="training", round_number=5, unit="active")
files = SITUATION.answer("judge").files
chunk = min(chunks_on(SITUATION.answer("netcup-router")))
SITUATION.on(
    "judge", files={**files, UNIT: f"{files[UNIT]}Nice=0\n"}, modified={UNIT: "2026-11-02 09:30 UTC"}
).unit("architect", "inactive", since="2026-11-02 08:15 UTC").on(
    "netcup-router",
    chunks=SITUATION.answer("netcup-router").chunks - {chunk},
    damaged={chunk: "has other content than its name says"},
).hardware("racknerd-510bd9c", memory_bytes=2 * GIB)
