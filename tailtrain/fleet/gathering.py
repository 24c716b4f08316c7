"""What goes to hosts, collected on this machine and looked at before any host is waited for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.data import cache
from tailtrain.fleet import material
from tailtrain.fleet.datasets import WORK_DIR, planned_datasets
from tailtrain.fleet.storage import Storage, find_storage
from tailtrain.planning.rehearsal import check_memory, check_templates
from tailtrain.spec.problems import Problems

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.planning.actions import Declared
    from tailtrain.planning.datasets import PlannedDataset

WHEELS_VARIABLE = "TAILTRAIN_WHEELS"
"""Environment variable: the folder of wheels where group data name none."""


@dataclass(frozen=True)
class Gathered:
    """What goes to hosts: programs, data sets, and the storage backend where one is declared."""

    bundle: material.Bundle
    datasets: list[PlannedDataset]
    storage: Storage | None


_ahead: list[tuple[Path, Declared, Gathered]] = []


def gather(project: Path, declared: Declared) -> Gathered:
    """What goes to hosts, collected and looked at: templates, locks, wheels, the model's size, data sets.

    Data sets are cut into chunks here, once. What was gathered ahead is not gathered again, that one time.

    Raises:
        TailtrainError: all that is wrong with them.
    """
    while _ahead:
        *whose, gathered = _ahead.pop()
        if whose == [project, declared]:
            return gathered
    return _gathered(project, declared)


def gather_ahead(project: Path, declared: Declared) -> None:
    """Gather for whoever will ask next.

    Raises:
        TailtrainError: all that is wrong.
    """
    _ahead.append((project, declared, _gathered(project, declared)))


def _gathered(project: Path, declared: Declared) -> Gathered:
    problems, settings = Problems(), declared.settings
    for domain, file in settings.datasets:
        with problems.gathered():
            cache.check_dataset(
                project / file,
                domain,
                project / WORK_DIR / "datasets",
                heldout_fraction=settings.heldout_fraction,
            )
    with problems.gathered():
        check_memory(declared)
    found, storage = [], None
    with problems.gathered():
        storage = find_storage(project, declared)
    with problems.gathered():
        found = [bundle_of(project, declared)]
        check_templates(found[0].templates, declared, found[0].material)
    problems.raise_if_any()
    # Data sets are cut last, as that may take its time.
    return Gathered(found[0], planned_datasets(project, declared), storage)


def bundle_of(project: Path, declared: Declared) -> material.Bundle:
    """A project's material, with the wheels that it or the environment names.

    Raises:
        DeclarationError: something of it is missing or wrong.
    """
    wheels = declared.settings.wheels or os.environ.get(WHEELS_VARIABLE) or None
    return material.bundle(project, wheels, declared.settings.package_index)
