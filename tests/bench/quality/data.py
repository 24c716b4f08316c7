"""The demo's data sets, cut and shared out by the product itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.data import cache
from tailtrain.planning.carried import chunks_to_share
from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
from tailtrain.planning.node_config import FleetSpans, spans_of
from tailtrain.planning.placement import Placement, place
from tailtrain.spec import apportion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailtrain.data.manifest import ChunkFile

HELD_OUT = 0.04
FILES = {"natural": "prose.parquet", "coding": "code.parquet"}


@dataclass(frozen=True)
class Shared:
    """Data sets, and who owns what of them.

    Attributes:
        folder: with `chunks` and `manifests`.
        datasets: as a plan has them.
        placements: by domain, what each node owns.
        spans: the same in few words.
    """

    folder: Path
    datasets: tuple[PlannedDataset, ...]
    placements: Mapping[str, Placement]
    spans: Mapping[str, FleetSpans]

    def all_of(self, node: str) -> Shared:
        """The same data with this node as the owner of everything."""
        whole = {
            dataset.domain: place(chunks_to_share(dataset), {node: dataset.train_records})
            for dataset in self.datasets
        }
        return Shared(self.folder, self.datasets, whole, {})

    def own_of(self, node: str) -> Shared:
        """What this node owns, without the others."""
        own = {domain: {node: placement[node]} for domain, placement in self.placements.items()}
        return Shared(self.folder, self.datasets, own, {})


def shared(source: Path, folder: Path, cores: Mapping[str, float]) -> Shared:
    """Cut the demo's files, unless they are cut already, and share them out by cores.

    Args:
        source: the folder with the demo's parquet files.
        folder: for chunks and manifests.
        cores: by node.
    """
    datasets = tuple(_dataset(source / file, domain, folder) for domain, file in FILES.items())
    placements = {}
    for dataset in datasets:
        quotas = apportion(dataset.train_records, list(cores.values()))
        placements[dataset.domain] = place(chunks_to_share(dataset), dict(zip(cores, quotas, strict=True)))
    spans = {dataset.domain: spans_of(dataset, placements[dataset.domain]) for dataset in datasets}
    return Shared(folder, datasets, placements, spans)


def _dataset(file: Path, domain: str, folder: Path) -> PlannedDataset:
    manifest = cache.ensure_dataset(file, domain, folder, heldout_fraction=HELD_OUT)
    return PlannedDataset(
        domain=domain,
        file=str(file),
        file_bytes=manifest.file_bytes,
        manifest_id=manifest.id,
        records=manifest.records,
        train=_planned(manifest.train),
        heldout=_planned(manifest.heldout),
    )


def _planned(chunks: Sequence[ChunkFile]) -> tuple[PlannedChunk, ...]:
    return tuple(PlannedChunk(chunk.sha256, chunk.bytes, chunk.rows) for chunk in chunks)
