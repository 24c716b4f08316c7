"""From chunk files to batches: whose records are whose, what is here, what is read."""
