"""What runs on a node: reading data, the model, training rounds, averaging, judging."""
