"""What a node measures of itself while it trains, kept for the plans that are made later: measured.json.

A later plan shares work out by it, so what stands there is what a round really took: tokens per second while
training alone, seconds and bytes of an averaging, seconds of a whole round, all smoothed as speeds are
(`gossip.health.Speed`). A node that is restarted in the same run goes on from what it measured before.
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING

from tailtrain.worker.files import canonical_json, write_atomically
from tailtrain.worker.gossip.health import Speed
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailtrain.worker.config import ModelConfig, WorkerConfig
    from tailtrain.worker.trainer import Work

FILE = "measured.json"
_VOCABULARY = 256
_SPEED, _LINK, _AVERAGING, _ROUND = (
    "tokens_per_second",
    "bytes_per_second",
    "averaging_seconds",
    "round_seconds",
)


class Measurements:
    """A node's measurements of one run.

    Args:
        path: the file, `FILE` in the state folder. Where it is of the same run, it is gone on from.
        config: this node's configuration.
    """

    def __init__(self, path: Path, config: WorkerConfig) -> None:
        self._path = path
        self._run, self._parameters = config.run_id, parameters_of(config.model)
        before = _read(path)
        same = before.get("run") == self._run
        self._smoothed = {
            name: _known(before.get(name)) if same else Speed()
            for name in (_SPEED, _LINK, _AVERAGING, _ROUND)
        }

    @property
    def speed(self) -> Speed:
        """This node's tokens per second while training."""
        return self._smoothed[_SPEED]

    def after(self, work: Work, averaging_seconds: float, moved_bytes: float, round_seconds: float) -> None:
        """Take in one round and write the file; what was not measured in it (0) stays as it was.

        A file that cannot be written is said and costs nothing else: no training depends on it.

        Args:
            work: what was trained in it.
            averaging_seconds: how long its averaging took.
            moved_bytes: what that moved in each direction.
            round_seconds: from the end of the averaging before to the end of this one.
        """
        found = {
            _SPEED: work.tokens / work.train_seconds if work.train_seconds > 0 else 0.0,
            _LINK: moved_bytes / averaging_seconds if averaging_seconds > 0 else 0.0,
            _AVERAGING: averaging_seconds,
            _ROUND: round_seconds,
        }
        for name, value in found.items():
            if math.isfinite(value):
                self._smoothed[name] = self._smoothed[name].after(value)
        document = {
            "run": self._run,
            "parameters": self._parameters,
            "at": round(time.time(), 3),
            **{name: round(smoothed.smoothed, 3) for name, smoothed in self._smoothed.items()},
        }
        try:
            write_atomically(self._path, canonical_json(document))
        except OSError as error:
            log(f"{self._path} cannot be written: {error.strerror}")


def parameters_of(model: ModelConfig) -> int:
    """How many parameters a model of these sizes has (see `worker.model`), without making it."""
    width = model.width
    return (_VOCABULARY + model.context + 1) * width + model.layers * (12 * width + 2) * width


def _known(value: object) -> Speed:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
    return Speed().after(number) if math.isfinite(number) else Speed()


def _read(path: Path) -> Mapping[str, object]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
