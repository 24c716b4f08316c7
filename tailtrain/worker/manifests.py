"""Data set manifests on this node: what is trained on, what is held out, how often each byte occurs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.errors import WorkerError
from tailtrain.worker.model import VOCABULARY

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.worker.config import DomainConfig

_FIX = "Deploy again: it is fetched and verified"


@dataclass(frozen=True)
class DataSet:
    """One data set as its manifest describes it; `byte_counts` are of the training text."""

    train: frozenset[str]
    heldout: tuple[str, ...]
    byte_counts: tuple[int, ...]


def load_data_set(state_dir: Path, domain: DomainConfig) -> DataSet:
    """The data set of a domain, checked against its id and against this node's share.

    Raises:
        WorkerError: the manifest is missing or damaged, a chunk is both trained on and held out, or this
            node's share names chunks that are not the data set's training chunks.
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
        train=frozenset(chunk["sha256"] for chunk in raw["train"]),
        heldout=tuple(chunk["sha256"] for chunk in raw["heldout"]),
        byte_counts=tuple(int(count) for count in raw["byte_counts"]),
    )
    if len(data_set.byte_counts) != VOCABULARY:
        raise WorkerError("a manifest does not count all byte values", field=str(path))
    if both := data_set.train.intersection(data_set.heldout):
        raise WorkerError("a chunk is both trained on and held out", field=str(path), found=min(both))
    for what, chunks, allowed in (
        (
            "a chunk of this node's share is not a training chunk",
            {r.chunk for r in domain.ranges},
            data_set.train,
        ),
        ("a held-out chunk is not one of the data set's", set(domain.heldout), frozenset(data_set.heldout)),
    ):
        if strange := chunks - allowed:
            raise WorkerError(what, field=domain.domain, found=min(strange))
    return data_set
