"""What this node has committed, and how it goes forwards and back.

A round's training is provisional until its averaging commits it. An averaging of all is the anchor: weights,
optimiser state, reading progress and ledger are written as one checkpoint, peers can download it, it decides
who reads which shelves, and the outer step goes from its weights to those of the next one. An averaging of a
pair in between (eneGossip) commits too, in memory: its members go on from the mean, and what either knew of
the ledger and of what was read. Whatever ends a round differently goes back to the last anchor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tailtrain.errors import PeerError
from tailtrain.worker.checkpoints import Checkpoint, CheckpointStore, is_due
from tailtrain.worker.commit import Commit
from tailtrain.worker.ledger import (
    PROTOCOL,
    Contribution,
    Entry,
    Fields,
    ledger_from_json,
    merge_ledgers,
)
from tailtrain.worker.model import build_model
from tailtrain.worker.optimizer import outer_step
from tailtrain.worker.reading.reading_progress import adopted_progress, join
from tailtrain.worker.reading.takeover import group_from_json
from tailtrain.worker.status import log
from tailtrain.worker.trainer import Trainer
from tailtrain.worker.weights import FlatWeights, is_finite, weights_sha256

if TYPE_CHECKING:
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.exchange import SharedState
    from tailtrain.worker.reading.supply import Supply

_FIRST_AVERAGING_SECONDS = 1.0
_OUTER = "outer"


class NodeState:
    """The committed state and the trainer that works ahead of it.

    Args:
        config: this node's configuration.
        supply: its data.

    Attributes:
        supply: its data.
        trainer: model, optimiser and data.
        commit: the last committed state.
        anchor: that of the last averaging of all; the same as `commit` where all average in every round.
        unsaved: in plain words, why the last checkpoint could not be written; empty where it was.
    """

    def __init__(self, config: WorkerConfig, supply: Supply) -> None:
        self._config, self.supply = config, supply
        self.trainer = Trainer(config, supply.stream)
        self._store = CheckpointStore(
            config.run_dir / "checkpoints",
            run_id=config.run_id,
            shards=supply.shards,
            keep=config.training.keep_checkpoints,
        )
        self._store.clear()
        self.commit = self.anchor = self._beginning()
        self.unsaved = ""
        self._unwritten = 0  # averagings of all since the last checkpoint
        self._go_on()

    def progress_after(self, rounds: int) -> float:
        """The share of the run's tokens that the fleet has trained so many rounds after the anchor.

        In between a node knows of what others trained only as far as it met them, so it takes their speeds.
        """
        training = self._config.training
        each = sum(self.anchor.group.values()) * training.round_seconds if rounds else 0.0
        return (self.anchor.total_tokens + rounds * each) / training.target_tokens

    def provisional(self) -> Tensor | None:
        """The weights as trained since the last commit, on the host; None if they are not finite."""
        vector = self._on_host()
        return vector if is_finite(vector) else None

    def shared(self) -> SharedState:
        """What peers may download: the state that all averaged, the same on all who were there."""
        return self.anchor.to_shared(self.supply.shards)

    def roll_back(self, not_after: int | None = None) -> None:
        """Go back to the last anchor (of round `not_after` at most), or to the beginning.

        Work that no averaging of all has committed is forgotten here: its records will be read again, unless
        others had it from an averaging in pairs. The optimiser goes back to the newest good checkpoint.
        """
        saved = self._store.load_newest(self.trainer.weights, report=log, not_after=not_after)
        if saved is None:
            found = self._beginning()
            self.trainer.optimizer.reset()
        else:
            outer, none_yet = saved.optimizer.get(_OUTER), self._no_outer(saved.weights)
            found = Commit(
                round=saved.round,
                weights=saved.weights,
                outer=outer if outer is not None and outer.shape == none_yet.shape else none_yet,
                digest=weights_sha256(saved.weights),
                own=saved.own,
                ledger=saved.ledger,
                progress=saved.progress,
                group=saved.group,
                averaging_seconds=saved.averaging_seconds,
                finished=saved.finished,
            )
            self.trainer.optimizer.restore(saved.optimizer, saved.step)
        kept = not_after is None or self.anchor.round <= not_after
        if not (kept and self.anchor.round > found.round):  # else it was not written to disk yet
            self.anchor = found
        self.commit = self.anchor
        self._go_on()

    def drop_work(self) -> None:
        """Forget what was trained since the last commit."""
        commit, anchor = self.commit, self.anchor
        self.roll_back()
        self.anchor, self.commit = anchor, commit
        self.trainer.weights.values.copy_(commit.weights)
        self.supply.go_back(commit.progress)

    def stand_by(self, why: str) -> None:
        """Read nothing until the next averaging of all: others may have read what would be this node's."""
        self.supply.stand_by(self.commit.progress, why)

    def adopt(self, node: str, downloaded: tuple[Any, list[Tensor]]) -> None:
        """Take over a peer's committed state; this node's optimiser state stays.

        If the peer's state is older than this node's, those go back to the same round first.

        Raises:
            PeerError: what the peer sent is not an acceptable state; nothing has changed then.
        """
        metadata, tensors = downloaded
        if not isinstance(metadata, dict):
            raise PeerError("a peer's state is not acceptable", host=node, field="metadata")
        fields = Fields(metadata, node)
        if (version := fields.whole("protocol")) != PROTOCOL:
            raise PeerError("a node speaks another protocol version", host=node, found=version)
        number = fields.whole("round", -1)
        finished = fields.take("finished") is True
        shards = self.supply.shards
        ledger = ledger_from_json(fields.take("ledger"), shards.nodes, node)
        read = fields.take("progress")
        adopted_progress(read, shards, node, {})
        group = group_from_json(fields.take("group"), shards, node)
        fields.end()
        expected = [self.commit.weights.shape, self.commit.outer.shape]
        if [tensor.shape for tensor in tensors] != expected or any(t.dtype != torch.float32 for t in tensors):
            raise PeerError("a peer's state is of another model", host=node)
        weights, outer = tensors
        if not (is_finite(weights) and is_finite(outer)):
            raise PeerError("a peer's state has values that are not finite", host=node)
        if number < self.commit.round:  # the peer, which leads, has lost what this node has
            self.roll_back(not_after=number)
        # What of this node's work is in these weights, their ledger knows; so do the records that it read.
        own = ledger.get(self._config.node, self.commit.own)
        self.commit = self.anchor = replace(
            self.commit,
            round=number,
            weights=weights,
            outer=outer,
            digest=weights_sha256(weights),
            own=own,
            ledger={**ledger, self._config.node: own},
            progress=adopted_progress(read, shards, node, self.commit.progress),
            group=group,
            finished=finished,
        )
        self._go_on()
        self.save()

    def average_into(self, group: dict[str, Contribution], mean: Tensor, averaging_seconds: float) -> None:
        """Commit an averaging of all: the mean (after the outer step), and everybody's work."""
        training = self._config.training
        weights, outer = mean, torch.zeros_like(self.anchor.outer)
        if len({member.base for member in group.values()}) == 1 and outer.numel():
            outer = self.anchor.outer.clone()
            weights = outer_step(
                self.anchor.weights,
                mean,
                outer,
                rate=training.outer_learning_rate,
                decay=training.outer_momentum,
            )
        # Members that began from different weights all take the plain mean, and are equal again.
        merged = self._merged(group, weights)
        self.commit = self.anchor = replace(
            merged,
            outer=outer,
            group={node: member.tokens_per_second for node, member in group.items()},
            averaging_seconds=averaging_seconds,
            finished=merged.total_tokens >= training.target_tokens,
        )
        self._unwritten += 1
        self._go_on()

    def average_pair(self, group: dict[str, Contribution], mean: Tensor) -> None:
        """Commit an averaging of two: the mean, and both's work. Each reads on as before."""
        self.commit = self._merged(group, mean)
        self.trainer.weights.values.copy_(mean)

    def _merged(self, group: dict[str, Contribution], weights: Tensor) -> Commit:
        """What every averaging commits."""
        ledger = merge_ledgers(group.values())
        return replace(
            self.commit,
            round=next(iter(group.values())).round,
            weights=weights,
            digest=weights_sha256(weights),
            own=ledger[self._config.node],
            ledger=ledger,
            progress=join((member.progress for member in group.values()), self.supply.shards),
        )

    def finish(self) -> None:
        """The others reached the target with the very state that this node has."""
        self.commit = self.anchor = replace(self.anchor, finished=True)
        self.save()

    def save_if_due(self, *, stopping: bool = False) -> None:
        """Write the anchor if it is not on disk yet: when its turn has come, and at an end."""
        due = is_due(
            self.anchor.round,
            every=self._config.training.checkpoint_rounds,
            all_each=self._config.coordination.all_each,
        )
        if self._unwritten and (due or stopping or self.anchor.finished):
            self.save(stopping=stopping)

    def save(self, *, stopping: bool = False) -> None:
        """Write the anchor, with the optimiser state, to disk.

        Where that fails, training goes on, for peers have the state too, and the next save tries again.

        Raises:
            WorkerError: it was the last one, at the end of the run or of this worker.
        """
        anchor = self.anchor
        optimizer = self.trainer.optimizer.state()
        if anchor.outer.numel():
            optimizer[_OUTER] = anchor.outer
        checkpoint = Checkpoint.of(anchor, optimizer, self.trainer.optimizer.step)
        try:
            self._store.save(checkpoint, self.trainer.weights)
        except OSError as error:
            last = stopping or anchor.finished
            problem = self._store.cannot_save(anchor.round, error, host=self._config.node, last=last)
            if last:
                raise problem from error
            self.unsaved, self._unwritten = str(problem), max(1, self._unwritten)
            log(self.unsaved)
            return
        self.unsaved, self._unwritten = "", 0

    def _go_on(self) -> None:
        """Train on from the anchor."""
        self.trainer.weights.values.copy_(self.commit.weights)
        self.supply.read_on(self.commit.progress, self.commit.group)

    def _beginning(self) -> Commit:
        """The state before the first round, the same on all nodes."""
        model = build_model(self._config.model, self._config.seed)
        weights = FlatWeights(model, torch.device("cpu")).values
        return Commit(
            round=-1,
            weights=weights,
            outer=self._no_outer(weights),
            digest=weights_sha256(weights),
            own=Entry(),
            ledger={},
            progress={},
            group={},
            averaging_seconds=_FIRST_AVERAGING_SECONDS,
            finished=False,
        )

    def _no_outer(self, weights: Tensor) -> Tensor:
        """The outer momentum at rest: of no elements in a run that has no outer step."""
        training = self._config.training
        plain = (training.outer_learning_rate, training.outer_momentum) == (1.0, 0.0)
        return torch.zeros(0) if plain else torch.zeros_like(weights)

    def _on_host(self) -> Tensor:
        return self.trainer.weights.values.detach().to("cpu", copy=True)
