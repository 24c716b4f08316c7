"""The declared data sets, cut into chunks on the control machine, as planning takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailtrain.data import cache
from tailtrain.errors import DataError
from tailtrain.planning.datasets import PlannedChunk, PlannedDataset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailtrain.data.manifest import Manifest
    from tailtrain.planning.actions import Declared

WORK_DIR = ".tailtrain"
"""Where the control machine keeps what it needs, in the project's folder."""


def planned_datasets(project: Path, declared: Declared) -> list[PlannedDataset]:
    """Cut the declared data sets into chunks (once) and read their manifests."""
    settings, found = declared.settings, []
    for domain, file in settings.datasets:
        manifest = cache.ensure_dataset(
            project / file,
            domain,
            project / WORK_DIR / "datasets",
            heldout_fraction=settings.heldout_fraction,
        )
        require_text(file, manifest)
        found.append(
            PlannedDataset(
                domain=domain,
                file=file,
                file_bytes=manifest.file_bytes,
                manifest_id=manifest.id,
                records=manifest.records,
                train=_planned(manifest.train),
                heldout=_planned(manifest.heldout),
            )
        )
    return found


def require_text(file: str, manifest: Manifest) -> None:
    """Check that there is something to learn from, and something to judge it by.

    Raises:
        DataError: naming the file.
    """
    if not manifest.train_text_bytes:
        raise DataError(
            "every record to train on is empty", field=file, found=f"{manifest.records:,} records"
        )
    if not manifest.heldout_text_bytes:
        raise DataError(
            "no text is held out to judge the model by",
            field=file,
            found=f"heldout_fraction {manifest.heldout_fraction:g}, {manifest.records:,} records",
            expected="at least one record held out that is not empty",
            fix="Raise heldout_fraction in group_data/all.py, or use a data set of more than one text",
        )


def _planned(chunks: Sequence[Any]) -> tuple[PlannedChunk, ...]:
    return tuple(PlannedChunk(chunk.sha256, chunk.bytes, chunk.rows) for chunk in chunks)
