"""The checkpoints of this engine on one node: a directory for each, whole or not there at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import CheckpointError, PeerError
from tailtrain.worker.files import canonical_json, sync_directory, write_atomically
from tailtrain.worker.ledger import Entry
from tailtrain.worker.sharded.files import OPTIMIZER, WEIGHTS, ModelFiles, sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailtrain.worker.sharded.layout import WholeModel

_FORMAT = "sharded 2"
NAME = re.compile(r"round-(\d{6,})")
STATE = "state.json"

Ledger = dict[str, Entry]


@dataclass(frozen=True)
class State:
    """What a checkpoint says beside the numbers.

    Attributes:
        round: its number, from 0; -1 stands for the state before the first.
        step: steps done, and the first that is still to be done.
        cursor: where reading stands before that step.
        ledger: who trained what; a step's tokens count for its nodes by the work of their layers.
        finished: whether the run's target was reached with it.
        committed_unix: when it was made (unix seconds).
        weights_sha256: as worker.weights.weights_sha256.
    """

    round: int
    step: int
    cursor: dict[str, Any]
    ledger: Ledger
    finished: bool
    committed_unix: float
    weights_sha256: str

    def same_as(self, other: State) -> bool:
        """Whether both are of one commit: each node that wrote it has a time of its own in it."""
        return (self.round, self.step, self.weights_sha256) == (
            other.round,
            other.step,
            other.weights_sha256,
        )


BEGINNING = State(-1, 0, {}, {}, finished=False, committed_unix=0.0, weights_sha256="")


class Checkpoints:
    """The checkpoints of one run on one node.

    Args:
        directory: where they are kept.
        run_id: the run.
        whole: the model's parameters.
        keep: how many are kept.
    """

    def __init__(self, directory: Path, *, run_id: str, whole: WholeModel, keep: int) -> None:
        self._directory, self._run_id, self._whole, self._keep = directory, run_id, whole, keep

    def newest(self, report: Callable[[str], None]) -> State | None:
        """The newest checkpoint whose files are what their hashes say; None if there is none.

        Each damaged one on the way is named to `report`.
        """
        for _, path in _listed(self._directory):
            try:
                return read_checkpoint(path, self._run_id)
            except CheckpointError as error:
                report(f"{error}; using the one before")
        return None

    def open(self, state: State) -> ModelFiles:
        """The files of a checkpoint that `newest` gave."""
        return ModelFiles(self._path(state.round), self._whole)

    def weights_file(self, state: State) -> Path:
        """The file of its weights."""
        return self._path(state.round) / WEIGHTS

    def begin(self, number: int) -> ModelFiles:
        """Empty files for a new checkpoint, under a temporary name.

        Raises:
            OSError: the disk has no room for them; nothing is left of them then.
        """
        temporary = self._temporary(number)
        self._directory.mkdir(parents=True, exist_ok=True)
        remove_halves(self._directory)
        temporary.mkdir(mode=0o750)
        try:
            return ModelFiles(temporary, self._whole, create=True)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def publish(self, state: State, hashes: dict[str, str]) -> None:
        """Make a begun checkpoint appear as one step; remove the oldest beyond those to keep."""
        content = {
            "format": _FORMAT,
            "run_id": self._run_id,
            "files": hashes,
            **asdict(state),
            "ledger": ledger_to_json(state.ledger),
        }
        temporary, path = self._temporary(state.round), self._path(state.round)
        write_atomically(temporary / STATE, canonical_json(content))
        # A round that is done again after a lost node has the same weights but for rounding.
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
        sync_directory(self._directory)
        for _, old in _listed(self._directory)[self._keep :]:
            shutil.rmtree(old)

    def _path(self, number: int) -> Path:
        return self._directory / f"round-{number:06d}"

    def _temporary(self, number: int) -> Path:
        return self._directory / f".round-{number:06d}.{os.getpid()}"


def finished_checkpoint(directory: Path, run_id: str) -> Path | None:
    """Where the checkpoint is with which the run was finished, whole; None where it is not here."""
    listed = _listed(directory)
    with suppress(OSError, ValueError, KeyError, TypeError, CheckpointError):
        # To read a model's files takes long: only of one that says that it is the last.
        newest = listed[0][1] if listed else None
        if newest and json.loads((newest / STATE).read_bytes())["finished"]:
            return newest if read_checkpoint(newest, run_id).finished else None
    return None


def remove_halves(directory: Path) -> None:
    """Remove what a killed worker left half-written."""
    for left in directory.glob(".round-*"):
        shutil.rmtree(left)


def _listed(directory: Path) -> list[tuple[int, Path]]:
    """Round and path of each checkpoint, newest first."""
    if not directory.is_dir():
        return []
    matches = [(NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def read_checkpoint(path: Path, run_id: str) -> State:
    """Read and check a checkpoint of this run.

    Raises:
        CheckpointError: it is damaged, or of another run.
    """
    try:
        raw = json.loads((path / STATE).read_bytes())
        if (raw["format"], raw["run_id"]) != (_FORMAT, run_id):
            raise CheckpointError("the checkpoint is of another run or format", field=str(path))
        for name in (WEIGHTS, OPTIMIZER):
            found = sha256_of(path / name)
            if found != raw["files"][name]:
                raise CheckpointError(
                    "a checkpoint is damaged",
                    field=str(path / name),
                    found=found,
                    expected=raw["files"][name],
                )
        return State(
            round=int(raw["round"]),
            step=int(raw["step"]),
            cursor=dict(raw["cursor"]),
            ledger=ledger_from_json(raw["ledger"]),
            finished=bool(raw["finished"]),
            committed_unix=float(raw["committed_unix"]),
            weights_sha256=str(raw["weights_sha256"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, PeerError) as error:
        raise CheckpointError("a checkpoint is damaged", field=str(path), found=repr(error)) from error


def state_to_json(state: State) -> dict[str, Any]:
    """As told to other nodes."""
    return {**asdict(state), "ledger": ledger_to_json(state.ledger)}


def ledger_to_json(ledger: Ledger) -> dict[str, list[int]]:
    """As stored and sent."""
    return {node: entry.to_list() for node, entry in sorted(ledger.items())}


def ledger_from_json(raw: dict[str, Any]) -> Ledger:
    """Check and read; PeerError if an entry is not one."""
    return {node: Entry.from_list(entry, node) for node, entry in raw.items()}
