"""What this machine keeps of a project in `.tailtrain`, and which of it may go.

One rule for all of it: what is declared now stays, and so does what was used in the last days.

    datasets/     cut data sets (`tailtrain.data.pruning`)
    runs/ID       models that were fetched, of runs that what is declared now does not go on with; their
                  reports are small and stay
    identities/   keys that were made for hosts which never got them, and are not in the inventory any more

The fleet's gossip key (`keys/`) never goes: with it this machine can add a host without a new key for all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tailtrain.data import cache
from tailtrain.data.pruning import DAY_SECONDS, Freed, prune_cache, removed
from tailtrain.fleet.datasets import WORK_DIR, planned_datasets
from tailtrain.planning.plan import run_ids

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.planning.actions import Declared
    from tailtrain.planning.plan import Material


def prune(
    project: Path, declared: Declared, material: Material, *, days: int, dry_run: bool
) -> dict[str, Freed]:
    """Remove what is neither declared nor was used in these days.

    Args:
        project: its folder.
        declared: what is declared now.
        material: its code and locks, which a run's id depends on.
        days: how long things stay after their last use.
        dry_run: only say what would go.

    Returns:
        What was freed, by what it was.

    Raises:
        DataError: something cannot be removed.
    """
    own, now = project / WORK_DIR, time.time()
    manifests = {
        cache.known_manifest(
            project / file, domain, own / "datasets", heldout_fraction=declared.settings.heldout_fraction
        )
        for domain, file in declared.settings.datasets
    }
    cut = {manifest for manifest in manifests if manifest}
    # Where a data set was not cut here, no run of what is declared was begun here either.
    what = None
    if None not in manifests:
        what, _ = run_ids(declared.settings, planned_datasets(project, declared), material, declared.nodes)
    since = now - days * DAY_SECONDS
    models = [
        folder
        for folder in sorted((own / "runs").glob("*/final"))
        if not (what and folder.parent.name.startswith(what)) and folder.stat().st_mtime < since
    ]
    names = {node.hostname for node in declared.nodes}
    keys = [
        path
        for path in sorted((own / "identities").glob("*.key"))
        if path.stem not in names and path.stat().st_mtime < since
    ]
    model_files = [path for folder in models for path in folder.glob("*")]
    return {
        "cut data set": prune_cache(own / "datasets", cut, now, days=days, dry_run=dry_run),
        "fetched model": removed(len(models), model_files, dry_run=dry_run),
        "unused peer key": removed(len(keys), keys, dry_run=dry_run),
    }
