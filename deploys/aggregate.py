"""Phase 3, model aggregation: the final model, on the primary."""

from tailtrain.fleet import operations, session

if session.anywhere("aggregate"):
    operations.aggregate(name="Model aggregation")
