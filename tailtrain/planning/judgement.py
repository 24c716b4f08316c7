"""Whether a model has learned: its held-out losses against those of knowing nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BASELINES = ("untrained_loss", "unigram_loss")
"""The model as it was before training, and byte frequencies of the training text."""


def unlearned(validation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Domain and baseline, wherever a node found the model no better; losses are in nats per byte."""
    for domain, losses in validation.get("domains", {}).items():
        for baseline in BASELINES:
            if not losses["loss"] < losses[baseline]:
                yield domain, baseline
