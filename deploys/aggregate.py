"""Phase 3, model aggregation: the final model, on the primary."""

from tailtrain.fleet import operations, session

if session.here().does("aggregate"):
    operations.aggregate(name="Model aggregation")
