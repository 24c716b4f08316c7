"""The declared data sets, cut into chunks on the control machine, as planning takes them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from tailtrain.data import cache
from tailtrain.errors import DataError
from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
from tailtrain.spec.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailtrain.data.manifest import Manifest
    from tailtrain.planning.actions import Declared

WORK_DIR = ".tailtrain"
"""Where the control machine keeps what it needs, in the project's folder."""

_SAID_EVERY_SECONDS = 3.0


def planned_datasets(project: Path, declared: Declared) -> list[PlannedDataset]:
    """Cut the declared data sets into chunks (once) and read their manifests.

    Raises:
        DataError: a data set cannot be used; an InvalidDeclarationError where that is so of several.
    """
    problems, found = Problems(), []
    for domain, file in declared.settings.datasets:
        with problems.gathered():
            found.append(_planned_dataset(project, domain, file, declared.settings.heldout_fraction))
    problems.raise_if_any()
    return found


def _planned_dataset(project: Path, domain: str, file: str, heldout_fraction: float) -> PlannedDataset:
    manifest = cache.ensure_dataset(
        project / file,
        domain,
        project / WORK_DIR / "datasets",
        heldout_fraction=heldout_fraction,
        progress=_Progress(file),
    )
    require_text(file, manifest)
    return PlannedDataset(
        domain=domain,
        file=file,
        file_bytes=manifest.file_bytes,
        manifest_id=manifest.id,
        records=manifest.records,
        train=_planned(manifest.train),
        heldout=_planned(manifest.heldout),
    )


class _Progress:
    """Says how far the cutting of a file is, every few seconds of it."""

    def __init__(self, file: str) -> None:
        self._file, self._said = file, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._said >= _SAID_EVERY_SECONDS:
            self._said = time.monotonic()
            click.echo(f"    cutting {self._file} into chunks, once: {done / total:.0%}", err=True)


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
