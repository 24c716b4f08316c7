"""Data set manifests on this node: what is trained on, what is held out, how often each byte occurs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tailtrain.errors import WorkerError
from tailtrain.spread import spread

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.worker.data_config import DomainConfig

_BYTE_VALUES = 256
_FIX = "Deploy again: it is fetched and verified"


@dataclass(frozen=True)
class Chunk:
    """One file of records: its SHA-256, its size in bytes, and how many records it has."""

    sha256: str
    size: int
    rows: int


@dataclass(frozen=True)
class DataSet:
    """One data set as its manifest describes it, in its order; `byte_counts` are of the training text."""

    train: tuple[Chunk, ...]
    heldout: tuple[Chunk, ...]
    byte_counts: tuple[int, ...]

    @cached_property
    def shared(self) -> tuple[Chunk, ...]:
        """The training chunks in the order in which they are shared out."""
        return spread(self.train)


def load_data_set(state_dir: Path, domain: DomainConfig) -> DataSet:
    """The data set of a domain, checked against its id and against this node's share.

    Raises:
        WorkerError: the manifest is missing or damaged, a chunk is both trained on and held out, or a node's
            share names chunks or rows that are not the data set's.
    """
    path = state_dir / "manifests" / f"{domain.manifest}.json"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkerError(
            "a manifest is not here", field=str(path), found=error.strerror, fix=_FIX
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != domain.manifest:
        raise WorkerError("a manifest is damaged", field=str(path), found=found, fix=_FIX)
    raw = json.loads(content)
    data_set = DataSet(
        train=_chunks(raw["train"]),
        heldout=_chunks(raw["heldout"]),
        byte_counts=tuple(int(count) for count in raw["byte_counts"]),
    )
    if len(data_set.byte_counts) != _BYTE_VALUES:
        raise WorkerError("a manifest does not count all byte values", field=str(path))
    train, heldout = ({chunk.sha256 for chunk in part} for part in (data_set.train, data_set.heldout))
    if both := train & heldout:
        raise WorkerError("a chunk is both trained on and held out", field=str(path), found=min(both))
    for what, chunks, allowed in (
        ("a chunk of this node's share is not a training chunk", {r.chunk for r in domain.ranges}, train),
        ("a held-out chunk is not one of the data set's", set(domain.heldout), heldout),
    ):
        if strange := chunks - allowed:
            raise WorkerError(what, field=domain.domain, found=min(strange))
    for node, spans in domain.others.items():
        for span in spans:
            if span.last >= len(data_set.shared) or span.stop > data_set.shared[span.last].rows:
                raise WorkerError(
                    "a share goes beyond the data set", host=node, field=domain.domain, found=span
                )
    return data_set


def _chunks(entries: list[dict[str, Any]]) -> tuple[Chunk, ...]:
    return tuple(Chunk(entry["sha256"], int(entry["bytes"]), int(entry["rows"])) for entry in entries)
