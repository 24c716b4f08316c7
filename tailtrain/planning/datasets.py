"""A data set as planning sees it: names, sizes and counts, all read from its manifest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedChunk:
    """An immutable file of records, named by the SHA-256 of its bytes."""

    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class PlannedDataset:
    """One domain's data set. `records` counts the whole file, training and held out."""

    domain: str
    file: str
    file_bytes: int
    manifest_id: str
    records: int
    train: tuple[PlannedChunk, ...]
    heldout: tuple[PlannedChunk, ...]

    @property
    def train_records(self) -> int:
        """Records that are trained on."""
        return sum(chunk.rows for chunk in self.train)

    @property
    def heldout_records(self) -> int:
        """Records that are only ever validated on."""
        return sum(chunk.rows for chunk in self.heldout)
