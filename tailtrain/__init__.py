"""One command trains a model on all the machines a person owns, over their Tailscale network."""

__version__ = "0.1.0"
