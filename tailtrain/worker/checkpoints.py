"""Committed states on disk: weights, optimiser state, reading progress, ledger and round.

One directory per committed round, made under a temporary name and renamed, with the hash of each file in
state.json. A damaged one is named and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.errors import CheckpointError, PeerError, WorkerError
from tailtrain.worker.files import cannot_write, canonical_json, clear_unpublished, publish_directory
from tailtrain.worker.ledger import Entry, Ledger, ledger_from_json, ledger_to_json
from tailtrain.worker.reading.reading_progress import Progress, progress_from_json, progress_to_json
from tailtrain.worker.reading.takeover import group_from_json
from tailtrain.worker.weights import FlatWeights, read_tensors, to_safetensors, weights_sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from tailtrain.worker.commit import Commit
    from tailtrain.worker.reading.shards import Shards

_FORMAT = 3
_NAME = re.compile(r"round-(\d{6,})")
_WEIGHTS, _OPTIMIZER, _STATE = "weights.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """A committed state of this node.

    Attributes:
        round: the round whose averaging made it; -1 is the state before the first.
        weights: the weights after that averaging, on the host.
        optimizer: tensors of the inner optimiser, and "outer", the outer momentum, where there is one.
        step: the inner optimiser's step count.
        progress: how far all shards have been read.
        group: tokens per second of each member of that averaging.
        own: this node's committed work.
        ledger: the fleet's committed work.
        averaging_seconds: how long that averaging took here.
        finished: whether the run's target was reached with it.
        committed_unix: when it was committed (unix seconds).
    """

    round: int
    weights: Tensor
    optimizer: dict[str, Tensor]
    step: int
    progress: Progress
    group: Mapping[str, float]
    own: Entry
    ledger: Ledger
    averaging_seconds: float
    finished: bool
    committed_unix: float

    @classmethod
    def of(cls, commit: Commit, optimizer: dict[str, Tensor], step: int) -> Checkpoint:
        """What is written of a commit now, with the optimiser's tensors and its step count."""
        return cls(
            round=commit.round,
            weights=commit.weights,
            optimizer=optimizer,
            step=step,
            own=commit.own,
            ledger=commit.ledger,
            progress=commit.progress,
            group=commit.group,
            averaging_seconds=commit.averaging_seconds,
            finished=commit.finished,
            committed_unix=round(time.time(), 3),
        )


def is_due(number: int, *, every: int, all_each: int) -> bool:
    """Whether nodes write what the averaging of all in a round committed.

    It depends on the round alone: all nodes write after the same averagings, whenever they came to the run,
    and find a state in common after all of them have crashed at once.

    Args:
        number: the round, from 0 on.
        every: every how many averagings of all.
        all_each: every how many rounds all average; 1 is always.
    """
    return (number + 1) // max(1, all_each) % every == 0


class CheckpointStore:
    """The checkpoints of one run on one node."""

    def __init__(self, directory: Path, *, run_id: str, shards: Shards, keep: int) -> None:
        self._directory, self._run_id, self._shards, self._keep = directory, run_id, shards, keep

    def save(self, checkpoint: Checkpoint, layout: FlatWeights) -> None:
        """Write a checkpoint as one step, then remove the oldest beyond those to keep.

        Raises:
            OSError: it cannot be written; nothing half-written stays.
        """
        path = self._directory / f"round-{checkpoint.round:06d}"
        publish_directory(path, self._files(checkpoint, layout))
        for _, old in self._listed()[self._keep :]:
            shutil.rmtree(old)

    def cannot_save(self, number: int, error: OSError, *, host: str, last: bool) -> WorkerError:
        """What to tell of a save that failed.

        Args:
            number: the round.
            error: of `save`.
            host: this node.
            last: whether no other save follows.
        """
        after = ", then: tailtrain resume" if last else "; training goes on, and the next save tries again"
        return cannot_write(
            f"the state after round {number} cannot be saved",
            host=host,
            folder=self._directory,
            error=error,
            fix=f"Make room on that disk{after}",
        )

    def clear(self) -> None:
        """Remove what a worker that was killed while it wrote has left; whole weights each."""
        clear_unpublished(self._directory, "round-")

    def _files(self, checkpoint: Checkpoint, layout: FlatWeights) -> Iterator[tuple[str, bytes]]:
        hashes = {}
        for name in (_WEIGHTS, _OPTIMIZER):
            weights = name == _WEIGHTS
            content = layout.to_bytes(checkpoint.weights) if weights else to_safetensors(checkpoint.optimizer)
            hashes[name] = hashlib.sha256(content).hexdigest()
            yield name, content
            del content
        state = {
            "format": _FORMAT,
            "run_id": self._run_id,
            "round": checkpoint.round,
            "step": checkpoint.step,
            "progress": progress_to_json(checkpoint.progress, self._shards),
            "group": dict(checkpoint.group),
            "own": checkpoint.own.to_list(),
            "ledger": ledger_to_json(checkpoint.ledger),
            "averaging_seconds": checkpoint.averaging_seconds,
            "finished": checkpoint.finished,
            "committed_unix": checkpoint.committed_unix,
            "weights_sha256": weights_sha256(checkpoint.weights),
            "files": hashes,
        }
        yield _STATE, canonical_json(state)

    def load_newest(
        self, layout: FlatWeights, *, report: Callable[[str], None], not_after: int | None = None
    ) -> Checkpoint | None:
        """The newest good checkpoint, at most of round `not_after`; None if there is none.

        Each damaged one on the way is named to `report`.
        """
        for number, path in self._listed():
            if not_after is not None and number > not_after:
                continue
            try:
                return self._load(path, layout)
            except CheckpointError as error:
                report(f"{error}; using the one before")
        return None

    def _listed(self) -> list[tuple[int, Path]]:
        """Round and path of each checkpoint, newest first."""
        if not self._directory.is_dir():
            return []
        matches = [(_NAME.fullmatch(path.name), path) for path in self._directory.iterdir()]
        return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)

    def _load(self, path: Path, layout: FlatWeights) -> Checkpoint:
        try:
            state = json.loads((path / _STATE).read_bytes())
            if (state["format"], state["run_id"]) != (_FORMAT, self._run_id):
                raise CheckpointError("the checkpoint is of another run or format", field=str(path))
            contents = {name: _verified(path / name, state["files"][name]) for name in (_WEIGHTS, _OPTIMIZER)}
            return Checkpoint(
                round=int(state["round"]),
                weights=layout.from_bytes(contents[_WEIGHTS]),
                optimizer=dict(read_tensors(contents[_OPTIMIZER])),
                step=int(state["step"]),
                progress=progress_from_json(state["progress"], self._shards, "checkpoint", own=True),
                group=group_from_json(state["group"], self._shards, "checkpoint"),
                own=Entry.from_list(state["own"], "own"),
                ledger=ledger_from_json(state["ledger"], self._shards.nodes, "checkpoint"),
                averaging_seconds=float(state["averaging_seconds"]),
                finished=bool(state["finished"]),
                committed_unix=float(state["committed_unix"]),
            )
        except (OSError, ValueError, KeyError, TypeError, PeerError) as error:
            raise CheckpointError("a checkpoint is damaged", field=str(path), found=repr(error)) from error


def _verified(path: Path, sha256: str) -> bytes:
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise CheckpointError("a checkpoint is damaged", field=str(path), found=found, expected=sha256)
    return content
