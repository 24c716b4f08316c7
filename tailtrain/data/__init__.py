"""Data sets: building, cutting into chunks, manifests, receiving and verifying."""
