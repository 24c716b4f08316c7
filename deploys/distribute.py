"""Phase 1, data distribution: each node gets the chunks of its share, copies, and all held-out records."""

from tailtrain.fleet import distribution, session

if session.anywhere("upload"):
    distribution.upload(name="Data distribution: to the storage backend")
if session.anywhere("chunks"):
    distribution.chunks(name="Data distribution: chunks")
if session.anywhere("copies"):
    distribution.copies(name="Data distribution: copies from other nodes")
