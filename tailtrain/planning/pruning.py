"""What a host no longer needs.

The rule: a host keeps the run at hand and the newest others, as many as `keep_runs` says; the code and the
environment in use and the newest other of each; the chunks that it owns, judges by or keeps a copy of, and
their manifests. What else there is of ours goes at the end of a deploy, after every host has verified what
is its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.parts import Removal, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.observed import Observation

_RUN_ID = re.compile(r"[0-9a-f]{16}")
KEPT_BESIDE = 1
"""How many environments and codes are kept beside the ones in use, so that going back costs nothing."""


def removals_of(
    answer: Observation,
    *,
    run_id: str,
    keep_runs: int,
    in_use: Mapping[str, str],
    wanted_chunks: frozenset[str],
    everyone: bool,
    datasets: Sequence[PlannedDataset],
    sizes: Mapping[str, int],
) -> Iterator[Removal]:
    """What a host can do without, by the rule of this module.

    Args:
        answer: what its probe answered.
        run_id: the run at hand.
        keep_runs: how many other runs are kept.
        in_use: the folder of environments and that of codes, each with the name of the one in use there.
        wanted_chunks: those that the host is to have.
        everyone: whether all hosts answered; without that no chunk goes, for somebody may still lack it.
        datasets: the declared ones.
        sizes: bytes of each of their chunks.
    """
    yield from _runs(answer, run_id, keep_runs)
    if everyone:
        yield from _chunks(answer, wanted_chunks, datasets, sizes)
    yield from _folders(answer, in_use)


def _runs(answer: Observation, run_id: str, keep_runs: int) -> Iterator[Removal]:
    others = sorted(
        # What does not bear the name of a run is somebody else's, whatever it is.
        (run for run in answer.runs if run.run_id != run_id and _RUN_ID.fullmatch(run.run_id)),
        key=lambda run: (-run.modified_unix, run.run_id),
    )
    for run in others[keep_runs:]:
        yield Removal(
            f"run {run.run_id} ({run.state or 'never started'})",
            f"not the run at hand, nor among the {counted(keep_runs, 'newest other')}",
            (layout.run(run.run_id),),
            run.bytes,
        )


def _chunks(
    answer: Observation,
    wanted: frozenset[str],
    datasets: Sequence[PlannedDataset],
    sizes: Mapping[str, int],
) -> Iterator[Removal]:
    released = sorted((answer.chunks | answer.damaged.keys()) - wanted)
    if released:
        yield Removal(
            counted(len(released), "chunk"),
            "kept by other nodes now",
            tuple(f"{layout.CHUNK_DIR}/{sha256}" for sha256 in released),
            sum(sizes.get(sha256, 0) for sha256 in released),
            data=True,
        )
    if answer.stray_chunks:
        yield Removal(
            counted(len(answer.stray_chunks), "chunk"),
            "of no declared data set",
            tuple(f"{layout.CHUNK_DIR}/{name}" for name in sorted(answer.stray_chunks)),
            sum(answer.stray_chunks.values()),
            data=True,
        )
    manifests = sorted(answer.manifests - {dataset.manifest_id for dataset in datasets})
    if manifests:
        yield Removal(
            counted(len(manifests), "manifest"),
            "of no declared data set",
            tuple(f"{layout.MANIFEST_DIR}/{manifest}.json" for manifest in manifests),
            0,
            data=True,
        )


def _folders(answer: Observation, in_use: Mapping[str, str]) -> Iterator[Removal]:
    """Environments and codes: `answer.stored` has the newest first."""
    for parent, name in in_use.items():
        noun = "environment" if parent == layout.ENVIRONMENT_DIR else "code"
        others = [folder for folder in answer.stored if folder.parent == parent and folder.name != name]
        for folder in others[KEPT_BESIDE:]:
            yield Removal(
                f"{noun} {folder.name}",
                f"not in use, nor the newest other {noun}",
                (f"{parent}/{folder.name}",),
                folder.bytes,
            )
