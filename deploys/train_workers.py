"""Phase 2, distributed training: start the workers, then wait on the primary until the run is finished."""

from tailtrain.fleet import operations, session

here = session.here()

if here.does("start") or here.does("restart"):
    operations.start(name="Distributed training: start workers")
if here.does("watch"):
    operations.train(name="Distributed training: rounds")
