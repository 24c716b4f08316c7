"""A data set as planning sees it: names, sizes and counts, all read from its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tailtrain.spread import spread


@dataclass(frozen=True)
class PlannedChunk:
    """An immutable file of records, named by the SHA-256 of its bytes."""

    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class PlannedDataset:
    """One domain's data set, in the manifest's order; `records` are all of the file's, held out or not."""

    domain: str
    file: str
    file_bytes: int
    manifest_id: str
    records: int
    train: tuple[PlannedChunk, ...]
    heldout: tuple[PlannedChunk, ...]

    @cached_property
    def shared(self) -> tuple[PlannedChunk, ...]:
        """The training chunks in the order in which they are shared out."""
        return spread(self.train)

    @property
    def train_records(self) -> int:
        """Records that are trained on."""
        return sum(chunk.rows for chunk in self.train)

    @property
    def heldout_records(self) -> int:
        """Records that are only ever validated on."""
        return sum(chunk.rows for chunk in self.heldout)
