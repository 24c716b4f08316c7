"""Phase 4, validation: every node judges the aggregated model; then the report."""

from tailtrain.fleet import operations, session

here = session.here()

if here.does("model"):
    operations.model(name="Validation: receive the model")
if here.does("validate"):
    operations.validate(name="Validation: held-out records")
if here.does("judge"):
    operations.judge(name="Validation: report")
