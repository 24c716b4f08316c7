"""Phase 2, distributed training: start the workers, then wait on the primary until the run is finished."""

from tailtrain.fleet import cleaning, operations, session

if session.anywhere("drain"):
    cleaning.drain(name="Distributed training: stop the workers of hosts that left")
if session.anywhere("start") or session.anywhere("restart"):
    operations.start(name="Distributed training: start workers")
if session.anywhere("watch"):
    operations.train(name="Distributed training: rounds")
