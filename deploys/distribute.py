"""Phase 1, data distribution: each node gets the chunks of its share, and all of the held-out records."""

from tailtrain.fleet import operations, session

if session.anywhere("chunks"):
    operations.chunks(name="Data distribution: chunks")
