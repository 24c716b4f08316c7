"""Local training: as many steps as fit until a given time, or, in a deterministic run, so many steps.

Where the number of steps is given, the clock decides nothing: the same batches on the same number of threads
give the same weights to the bit.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tailtrain.worker.model import build_model, next_byte_loss
from tailtrain.worker.optimizer import AdamW
from tailtrain.worker.peers.forks import forget_in_forks
from tailtrain.worker.weights import FlatWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.reading.batches import BatchStream

_IDLE_SECONDS = 0.2
_CUBLAS_SPACE = ":4096:8"  # with a fixed workspace cuBLAS adds in the same order each time (manual, 2.1.4)


@dataclass(frozen=True)
class Work:
    """What one node did in one round.

    Attributes:
        tokens: bytes trained on.
        records: completed, by the node that owns them.
        loss: mean in nats per byte; None where nothing was trained.
        train_seconds: wall time, without waiting for chunks that are not here.
        cpu_seconds: processor time.
    """

    tokens: int
    records: Mapping[str, int]
    loss: float | None
    train_seconds: float
    cpu_seconds: float


NO_WORK = Work(0, {}, None, 0.0, 0.0)


class Trainer:
    """A node's model, optimiser and data.

    Attributes:
        weights: the model's parameters as one vector.
        optimizer: the inner optimiser.
        stream: what this node reads, as batches.
    """

    def __init__(self, config: WorkerConfig, stream: BatchStream) -> None:
        torch.set_num_threads(config.threads)
        self.device = choose_device(config.device)
        self._batch_size = config.training.batch_size
        self._steps = config.training.steps_per_round
        if self._steps and self.device.type == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", _CUBLAS_SPACE)
            torch.use_deterministic_algorithms(True)
        self._context = config.model.context
        self._model = build_model(config.model, config.seed)
        self.weights = FlatWeights(self._model, self.device)
        self._model.to(self.device)
        self.optimizer = AdamW(self.weights.values, self.weights.decayed, config.training)
        self.stream = stream
        forget_in_forks([self.weights.values, self.weights.gradients, *self.optimizer.vectors])

    def train_until(self, ends: float, progress: float, stopping: Callable[[], bool]) -> Work:
        """Train until the clock says `ends` (unix seconds), or until `stopping`.

        The last step is made smaller to fit into what is left, so a slow node neither keeps the others
        waiting nor waits itself. In a deterministic run it is as many whole steps as are configured,
        whatever the clock says.

        Args:
            ends: when to end, unless the steps are given.
            progress: the share of the run's tokens that is done; the learning rate follows it.
            stopping: asked before each step.
        """
        if self.stream.empty:
            _sleep_until(ends, stopping)
            return NO_WORK
        started, cpu_started = time.perf_counter(), time.process_time()
        tokens = steps = 0
        waited = 0.0
        records: dict[str, int] = {}
        loss_sum = torch.zeros((), device=self.device)
        step_seconds = 0.0
        while not stopping() and (size := self._next_size(steps, ends - time.time(), step_seconds)):
            before = time.perf_counter()
            batch = self.stream.next_batch(size)
            if batch is None:
                now = time.time()
                _sleep_until(now + _IDLE_SECONDS if self._steps else min(ends, now + _IDLE_SECONDS), stopping)
                waited += time.perf_counter() - before
                continue
            began = time.perf_counter()  # without reading: to open shelves takes seconds once in a while
            window = torch.from_numpy(batch.windows).to(self.device, torch.long)
            loss = next_byte_loss(self._model, window)
            self.weights.gradients.zero_()
            loss.backward()
            self.optimizer.update(self.weights.values, self.weights.gradients, progress)
            loss_sum += loss.detach()
            tokens += len(batch.windows) * self._context
            for node, completed in batch.records.items():
                records[node] = records.get(node, 0) + completed
            steps += 1
            if len(batch.windows) == self._batch_size:
                took = time.perf_counter() - began
                step_seconds = 0.8 * step_seconds + 0.2 * took if step_seconds else took
        return Work(
            tokens=tokens,
            records=records,
            loss=float(loss_sum) / steps if steps else None,
            train_seconds=time.perf_counter() - started - waited,
            cpu_seconds=time.process_time() - cpu_started,
        )

    def _next_size(self, done: int, seconds: float, step_seconds: float) -> int:
        """How many windows the next step takes: a batch, or what fits into this time; 0 ends the round."""
        if self._steps:
            return self._batch_size if done < self._steps else 0
        if seconds <= 0:
            return 0
        if seconds >= step_seconds:
            return self._batch_size
        return int(self._batch_size * seconds / step_seconds)


def choose_device(wanted: str) -> torch.device:
    """The wanted device, or the processor where there is no CUDA device."""
    return torch.device("cuda" if wanted == "cuda" and torch.cuda.is_available() else "cpu")


def _sleep_until(ends: float, stopping: Callable[[], bool]) -> None:
    while not stopping() and (left := ends - time.time()) > 0:
        time.sleep(min(_IDLE_SECONDS, left))
