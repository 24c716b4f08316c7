"""What this node has committed, and how it goes forwards and back.

A round's training is provisional until its averaging commits it: then weights, optimiser state, reading
progress and ledger are written as one checkpoint. Whatever ends a round differently goes back to the last
commit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tailtrain.errors import PeerError
from tailtrain.worker.checkpoints import Checkpoint, CheckpointStore
from tailtrain.worker.ledger import (
    PROTOCOL,
    Contribution,
    Entry,
    Fields,
    Ledger,
    ledger_from_json,
    ledger_to_json,
    merge_ledgers,
    total_tokens,
)
from tailtrain.worker.model import build_model
from tailtrain.worker.optimizer import outer_step
from tailtrain.worker.reading_progress import Progress, adopted_progress, join, progress_to_json
from tailtrain.worker.status import log
from tailtrain.worker.takeover import group_from_json
from tailtrain.worker.trainer import Trainer
from tailtrain.worker.weights import FlatWeights, is_finite, weights_sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.exchange import SharedState
    from tailtrain.worker.supply import Supply

_FIRST_AVERAGING_SECONDS = 1.0
_OUTER = "outer"


@dataclass(frozen=True)
class Commit:
    """The last committed state, without what only the trainer and the disk hold.

    Attributes:
        round: the last committed round, -1 before the first.
        weights: on the host; never changed in place, peers may be downloading it.
        outer: the outer momentum, of no elements where the run has no outer step.
        digest: SHA-256 of the weights.
        own: this node's committed work.
        ledger: the fleet's.
        progress: how far all shards have been read for these weights.
        group: tokens per second of each member of the averaging that made them; of none before the first.
        averaging_seconds: how long the last averaging took here.
        finished: whether the target was reached.
    """

    round: int
    weights: Tensor
    outer: Tensor
    digest: str
    own: Entry
    ledger: Ledger
    progress: Progress
    group: Mapping[str, float]
    averaging_seconds: float
    finished: bool

    @property
    def total_tokens(self) -> int:
        """What the fleet has committed."""
        return total_tokens(self.ledger)

    def to_status(self) -> dict[str, Any]:
        """As status.json shows it."""
        return {
            "tokens": self.own.tokens,
            "records": self.own.records,
            "total_tokens": self.total_tokens,
            "weights_sha256": self.digest,
        }


class NodeState:
    """The committed state and the trainer that works ahead of it.

    Args:
        config: this node's configuration.
        supply: its data.

    Attributes:
        supply: its data.
        trainer: model, optimiser and data.
        commit: the last committed state.
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
        self.commit = self._beginning()
        self._go_on()

    @property
    def progress(self) -> float:
        """The share of the run's tokens that the fleet has committed."""
        return self.commit.total_tokens / self._config.training.target_tokens

    def provisional(self) -> Tensor | None:
        """The weights as trained since the last commit, on the host; None if they are not finite."""
        vector = self._on_host()
        return vector if is_finite(vector) else None

    def shared(self) -> SharedState:
        """What peers may download: the committed state."""
        commit = self.commit
        metadata = {
            "protocol": PROTOCOL,
            "round": commit.round,
            "finished": commit.finished,
            "ledger": ledger_to_json(commit.ledger),
            "progress": progress_to_json(commit.progress, self.supply.shards),
            "group": dict(commit.group),
        }
        return metadata, [commit.weights, commit.outer]

    def roll_back(self, not_after: int | None = None) -> None:
        """Go to the newest good checkpoint (of round `not_after` at most), or to the beginning.

        Work that no averaging has committed is forgotten: its records will be read again.
        """
        saved = self._store.load_newest(self.trainer.weights, report=log, not_after=not_after)
        if saved is None:
            self.commit = self._beginning()
            self.trainer.optimizer.reset()
        else:
            outer, none_yet = saved.optimizer.get(_OUTER), self._no_outer(saved.weights)
            self.commit = Commit(
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
        self._go_on()

    def adopt(self, node: str, downloaded: tuple[Any, list[Tensor]]) -> None:
        """Take over a peer's committed state; this node's optimiser state and own work stay.

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
        own = self.commit.own
        if self.commit.round < 0:  # this node's disk knows nothing of the run: others may
            own = ledger.get(self._config.node, own)
        self.commit = replace(
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
        """Commit a round: the mean (after the outer step), and everybody's work, to memory and disk."""
        training = self._config.training
        weights, outer = mean, torch.zeros_like(self.commit.outer)
        if len({member.base for member in group.values()}) == 1 and outer.numel():
            outer = self.commit.outer.clone()
            weights = outer_step(
                self.commit.weights,
                mean,
                outer,
                rate=training.outer_learning_rate,
                decay=training.outer_momentum,
            )
        # Members that began from different weights all take the plain mean, and are equal again.
        ledger = merge_ledgers(group.values())
        number = next(iter(group.values())).round
        self.commit = Commit(
            round=number,
            weights=weights,
            outer=outer,
            digest=weights_sha256(weights),
            own=ledger[self._config.node],
            ledger=ledger,
            progress=join((member.progress for member in group.values()), self.supply.shards),
            group={node: member.tokens_per_second for node, member in group.items()},
            averaging_seconds=averaging_seconds,
            finished=total_tokens(ledger) >= training.target_tokens,
        )
        self._go_on()

    def finish(self) -> None:
        """The others reached the target with the very state that this node has."""
        self.commit = replace(self.commit, finished=True)
        self.save()

    def save(self) -> None:
        """Write the commit, with the optimiser state, to disk."""
        optimizer = self.trainer.optimizer.state()
        if self.commit.outer.numel():
            optimizer[_OUTER] = self.commit.outer
        self._store.save(
            Checkpoint(
                round=self.commit.round,
                weights=self.commit.weights,
                optimizer=optimizer,
                step=self.trainer.optimizer.step,
                own=self.commit.own,
                ledger=self.commit.ledger,
                progress=self.commit.progress,
                group=self.commit.group,
                averaging_seconds=self.commit.averaging_seconds,
                finished=self.commit.finished,
                committed_unix=round(time.time(), 3),
            ),
            self.trainer.weights,
        )

    def _go_on(self) -> None:
        """Train on from the commit."""
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
