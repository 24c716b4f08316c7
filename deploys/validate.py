"""Phase 4, validation: every node judges the aggregated model; then the report."""

from tailtrain.fleet import operations, session

if session.anywhere("model"):
    operations.model(name="Validation: receive the model")
if session.anywhere("validate"):
    operations.validate(name="Validation: held-out records")
if session.anywhere("judge"):
    operations.judge(name="Validation: report")
