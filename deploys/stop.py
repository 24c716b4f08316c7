"""Stop all workers. What was committed at the last averaging stays; a resume goes on from there."""

from tailtrain.fleet import operations

operations.stop(name="Stop workers")
