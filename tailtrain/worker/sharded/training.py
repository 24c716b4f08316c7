"""The steps of a run on one active rank: gradients, the common norm, the update, a checkpoint now and then.

The losses do not depend on the cut, but for rounding: a step's batch follows from its number, microbatches
are the same for any number of stages, and gradients are clipped by the norm over all ranks.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from tailtrain.errors import CheckpointError
from tailtrain.worker.optimizer import AdamW
from tailtrain.worker.sharded.checkpoints import BEGINNING, Ledger, State
from tailtrain.worker.sharded.layout import Piece, first_weights
from tailtrain.worker.sharded.ledger import credit, told_of, total_of
from tailtrain.worker.sharded.members import Known
from tailtrain.worker.sharded.transfer import Layouts, gather, scatter
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from tailtrain.worker.sharded.checkpoints import Checkpoints
    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.sharded.members import Share
    from tailtrain.worker.sharded.source import BatchSource
    from tailtrain.worker.sharded.status import ShardedStatus
    from tailtrain.worker.weights import FlatWeights

_CLIP_NORM = 1.0  # as the data-parallel engine's
_DIGEST_BYTES = 32


class ShardedModel(Protocol):
    """This rank's part of the model: a stage of a pipeline, or a part of every layer."""

    pieces: tuple[Piece, ...]
    weights: FlatWeights

    @property
    def busy(self) -> float:
        """Seconds spent computing so far."""

    def backward(self, windows: Tensor) -> float:
        """One step's gradients, into `weights`; the mean loss on one rank, 0 on the others."""

    def share_gradients(self) -> None:
        """Add what several ranks have of the same parameter's gradient."""

    def share_copies(self) -> None:
        """Make parameters that several ranks hold equal again."""


@dataclass(frozen=True)
class Team:
    """Who trains together, alike on all of them.

    Attributes:
        members: all that met, in the order of their ranks.
        shares: what each active one does.
        writers: ranks that write checkpoints; the first one's digest counts.
        group: the active ranks.
    """

    members: tuple[str, ...]
    shares: dict[str, Share]
    writers: tuple[int, ...]
    group: dist.ProcessGroup

    @property
    def layouts(self) -> Layouts:
        """What each active rank holds."""
        return {share.rank: share.pieces for share in self.shares.values()}

    @property
    def cut(self) -> dict[str, list[int]]:
        """The layers of each active node, as told."""
        return {node: list(share.layers) for node, share in self.shares.items()}


class Training:
    """One active rank's work from one start to the next.

    Args:
        config: this node's configuration.
        model: this rank's part of the model, without values.
        team: who trains.
        source: the batches.
        checkpoints: of this node.
        status: of this node.
    """

    def __init__(
        self,
        config: ShardedConfig,
        model: ShardedModel,
        team: Team,
        source: BatchSource,
        checkpoints: Checkpoints,
        status: ShardedStatus,
    ) -> None:
        self._config, self._model, self._team, self._source = config, model, team, source
        self._checkpoints, self._status = checkpoints, status
        self._node = config.worker.node
        weights = model.weights
        self._optimizer = AdamW(weights.values, weights.decayed, config.worker.training)
        self.state = BEGINNING
        self._ledger: Ledger = {}
        self._records = 0
        self._known = Known()

    def load(self, state: State, holder: int, having: Collection[int], known: Known) -> None:
        """Begin where a checkpoint ends; with first weights where there is none."""
        self.state, self._ledger, self._records = state, dict(state.ledger), 0
        self._known = known
        if state == BEGINNING:
            worker = self._config.worker
            first = first_weights(worker.model, worker.seed, self._model.pieces)
            for name, view in self._model.weights.views(self._model.weights.values).items():
                view.copy_(first[name])
            return
        files = self._checkpoints.open(state) if dist.get_rank() in having else None
        scatter(self._team.layouts, self._vectors, holder, files, having)
        self._optimizer.step = state.step
        self._source.seek(state.step, state.cursor)

    def run(self) -> None:
        """Train until the target is reached, with a checkpoint every so many steps and at the end."""
        step, every, total = self.state.step, self._config.checkpoint_steps, self._config.total_steps
        while step < total:
            until = min(total, (step // every + 1) * every)
            began, began_busy, began_cpu = time.time(), self._model.busy, time.process_time()
            losses: list[float] = []
            while step < until:
                losses.append(self._step(step))
                step += 1
                self._tell(step, losses[-1], len(losses) / max(time.time() - began, 1e-9))
            trained = time.time()
            work = [self._model.busy - began_busy, time.process_time() - began_cpu, trained]
            self._commit(step, finished=step == total)
            # At once: should all that wrote it be lost, the others know what they have to wait for.
            writers = tuple(self._team.members[rank] for rank in self._team.writers)
            self._known = Known(step, writers)
            self._tell(step, losses[-1], len(losses) / max(trained - began, 1e-9), at_once=True)
            self._write_progress(losses, began, trained, self._gathered(work))

    @property
    def _vectors(self) -> dict[str, Tensor]:
        moments = self._optimizer.state()
        return {"weights": self._model.weights.values, **moments}

    def _step(self, step: int) -> float:
        """One step; the mean loss in nats per byte, the same on all ranks."""
        batch = self._source.batch(step)
        self._records += batch.records
        weights = self._model.weights
        weights.gradients.zero_()
        loss = self._model.backward(torch.from_numpy(batch.windows).long())
        self._model.share_gradients()
        gradients = weights.views(weights.gradients)
        counted = [gradients[piece.name] for piece in self._model.pieces if not piece.copy]
        square = sum(float(torch.linalg.vector_norm(gradient)) ** 2 for gradient in counted)
        totals = torch.tensor([square, loss], dtype=torch.float64)
        dist.all_reduce(totals, group=self._team.group)
        norm, loss = math.sqrt(float(totals[0])), float(totals[1])
        if not math.isfinite(norm) or not math.isfinite(loss):
            log(f"step {step}: the loss or a gradient is not finite; the step changes nothing")
            self._optimizer.step += 1
            return loss
        # The optimiser clips by this rank's own norm, which is never above the common one.
        if norm > _CLIP_NORM:
            weights.gradients.mul_(_CLIP_NORM / norm)
        done = step * self._config.tokens_per_step / self._config.worker.training.target_tokens
        self._optimizer.update(weights.values, weights.gradients, min(1.0, done))
        return loss

    def _commit(self, step: int, *, finished: bool) -> None:
        """Write a checkpoint on the writers' nodes."""
        rank, number = dist.get_rank(), self.state.round + 1
        self._model.share_copies()
        files = self._checkpoints.begin(number) if rank in self._team.writers else None
        gather(self._team.layouts, self._vectors, self._team.writers, files)
        hashes, digest = files.finish() if files is not None else ({}, "")
        told = torch.zeros(_DIGEST_BYTES, dtype=torch.uint8)
        if digest:
            told = torch.frombuffer(bytearray.fromhex(digest), dtype=torch.uint8)
        common = told.clone()
        dist.broadcast(common, self._team.writers[0], group=self._team.group)
        if digest and not torch.equal(common, told):
            raise CheckpointError(
                "a checkpoint is not the same on two nodes",
                found=digest,
                expected=bytes(common.tolist()).hex(),
            )
        steps = step - self.state.step
        tokens = steps * self._config.tokens_per_step
        self._ledger = credit(self._ledger, self._team.shares, tokens, self._records)
        self._records = 0
        self.state = State(
            round=number,
            step=step,
            cursor=self._source.cursor(),
            ledger=self._ledger,
            finished=finished,
            committed_unix=time.time(),
            weights_sha256=bytes(common.tolist()).hex(),
        )
        if files is not None:
            self._checkpoints.publish(self.state, hashes)
        # Nobody goes on before it is written: what is told as committed is.
        dist.barrier(group=self._team.group)

    def _gathered(self, work: Sequence[float]) -> dict[str, list[float]]:
        """What each active node measured of its own work."""
        own = torch.tensor(work, dtype=torch.float64)
        parts = [torch.empty_like(own) for _ in self._team.shares]
        dist.all_gather(parts, own, group=self._team.group)
        return {node: part.tolist() for node, part in zip(self._team.shares, parts, strict=True)}

    def _tell(self, step: int, loss: float, steps_per_second: float, *, at_once: bool = False) -> None:
        share = self._team.shares[self._node]
        self._status.set(
            "training",
            round=self.state.round,
            step=step,
            loss=loss if math.isfinite(loss) else None,
            tokens_per_second=round(steps_per_second * self._config.tokens_per_step, 1),
            layers=list(share.layers),
            parameter_bytes=self._model.weights.values.nbytes,
            members=list(self._team.members),
            cut=self._team.cut,
            **told_of(self.state, self._node),
            **self._known.to_json(),
            at_once=at_once,
        )

    def _write_progress(
        self, losses: Sequence[float], began: float, trained: float, work: dict[str, list[float]]
    ) -> None:
        ended, shares = time.time(), self._team.shares
        whole = sum(share.work for share in shares.values())
        tokens = len(losses) * self._config.tokens_per_step
        mean = sum(losses) / len(losses)
        loss = mean if math.isfinite(mean) else None
        # This interval alone: credit of nothing before.
        parts = credit({}, shares, tokens, 0)
        group: list[dict[str, Any]] = []
        for node, (busy, cpu, arrived) in work.items():
            group.append(
                {
                    "node": node,
                    "tokens": parts[node].tokens,
                    "records": 0,
                    "loss": loss,
                    "tokens_per_second": round(tokens * shares[node].work / whole / max(busy, 1e-9), 1),
                    "cpu_seconds": round(cpu, 3),
                    "train_seconds": round(trained - began, 3),
                    "busy_seconds": round(busy, 3),
                    "arrived_unix": round(arrived, 3),
                    "layers": list(shares[node].layers),
                }
            )
        self._status.add_progress(
            {
                "round": self.state.round,
                "step": self.state.step,
                "loss": loss,
                "started_unix": round(began, 3),
                "ended_unix": round(ended, 3),
                "train_seconds": round(trained - began, 3),
                "averaging_seconds": round(ended - trained, 3),
                "group": group,
                "total_tokens": total_of(self.state),
                "weights_sha256": self.state.weights_sha256,
                "live": list(self._team.members),
            }
        )
