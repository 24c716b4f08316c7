"""The storage backend of a fleet: looked at from this machine when a plan is made, filled when it is done."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from tailtrain.data.backends.find import find_remote
from tailtrain.data.backends.listing import list_packs
from tailtrain.data.backends.remote import node_flags
from tailtrain.data.backends.upload import upload
from tailtrain.data.packs import Pack, packs_of, places_of
from tailtrain.fleet.datasets import WORK_DIR
from tailtrain.planning.storage_plan import PlannedStorage
from tailtrain.spec import StorageBackend

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tailtrain.data.backends.remote import Remote
    from tailtrain.data.packs import Place
    from tailtrain.planning.actions import Declared
    from tailtrain.planning.datasets import PlannedDataset


@dataclass(frozen=True)
class Storage:
    """A backend that was found, with what nodes are told of it.

    Attributes:
        remote: how this machine reaches it.
        config: the text of the credentials' file for nodes; a secret.
        planned: what the plan says of it.
        work_dir: where this machine keeps what it knows of backends, and builds packs.
    """

    remote: Remote
    config: str
    planned: PlannedStorage
    work_dir: Path

    def looked_at(self, datasets: Sequence[PlannedDataset], *, needed: bool) -> Storage:
        """The same with what it lacks of these data sets.

        Args:
            datasets: the declared ones.
            needed: whether a host is to get anything; the backend is asked then. Without that it is asked
                only where this machine does not remember having filled it.

        Raises:
            StorageError: it cannot be reached, or not with these credentials.
        """
        if not needed and self._filled() >= {dataset.manifest_id for dataset in datasets}:
            return self
        listing = list_packs(self.remote)
        lacking = {pack.name: pack.size for pack in listing.missing(packs(datasets))}
        if not lacking:
            self._remember(datasets)
        return replace(self, planned=replace(self.planned, uploads=lacking))

    def fill(self, datasets: Sequence[PlannedDataset], names: Iterable[str], chunk_dir: Path) -> None:
        """Upload packs, saying how far that is, and remember that the data sets are there.

        Raises:
            StorageError: what stands in the way, in plain words.
        """
        self._upload([pack for pack in packs(datasets) if pack.name in set(names)], chunk_dir)
        self._remember(datasets)

    def mend(self, datasets: Sequence[PlannedDataset], chunks: frozenset[str], chunk_dir: Path) -> int:
        """Upload the packs again in which these chunks are damaged; how many those are.

        Raises:
            StorageError: as `fill`.
        """
        damaged = [pack for pack in packs(datasets) if chunks & {sha256 for sha256, _ in pack.chunks}]
        self._upload(damaged, chunk_dir, again=True)
        return len(damaged)

    def _upload(self, chosen: Sequence[Pack], chunk_dir: Path, *, again: bool = False) -> None:
        upload(
            self.remote,
            chosen,
            chunk_dir,
            self.work_dir / "packs",
            progress=_Progress(self.planned.path),
            replace=again,
        )

    @property
    def _memory(self) -> Path:
        reached = replace(self.planned, uploads=None)  # by another way, it is to be tried anew
        name = hashlib.sha256(repr(reached).encode()).hexdigest()[:16]
        return self.work_dir / f"{name}.json"

    def _filled(self) -> set[str]:
        """The manifests whose chunks this machine remembers to be there."""
        try:
            return {str(name) for name in json.loads(self._memory.read_bytes())}
        except (OSError, ValueError, TypeError):
            return set()

    def _remember(self, datasets: Sequence[PlannedDataset]) -> None:
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        names = sorted(self._filled() | {dataset.manifest_id for dataset in datasets})
        self._memory.write_text(json.dumps(names) + "\n", encoding="utf-8")


def find_storage(project: Path, declared: Declared) -> Storage | None:
    """The backend that the settings name, None where the control machine sends.

    Raises:
        DeclarationError: it is not declared, or not configured, as it must be.
    """
    settings = declared.settings
    if settings.training.storage_backend is StorageBackend.LOCAL:
        return None
    remote = find_remote(
        settings.training.storage_backend,
        settings.storage,
        project=project,
        environ=os.environ,
    )
    config = remote.node_config()
    planned = PlannedStorage(
        path=remote.path,
        config_sha256=hashlib.sha256(config.encode()).hexdigest(),
        flags=node_flags(remote),
        ca_text=remote.certificate_text(),
    )
    return Storage(remote, config, planned, project / WORK_DIR / "storage")


def packs(datasets: Sequence[PlannedDataset]) -> list[Pack]:
    """The packs of all data sets."""
    return [
        pack
        for dataset in datasets
        for pack in packs_of([(chunk.sha256, chunk.bytes) for chunk in (*dataset.train, *dataset.heldout)])
    ]


def places(datasets: Sequence[PlannedDataset]) -> Mapping[str, Place]:
    """Where on a backend each chunk of all data sets lies."""
    return places_of(packs(datasets))


class _Progress:
    """Says how far an upload is, at every tenth."""

    def __init__(self, path: str) -> None:
        self._path, self._said = path, 0

    def __call__(self, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if tenth > self._said:
            self._said = tenth
            click.echo(f"    uploading to {self._path}: {done / total:.0%}", err=True)
