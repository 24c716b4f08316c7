"""Which chunks each host is to have, which it lacks, and where those come from: made once for all hosts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tailtrain.planning.copies import Ring, copies_of
from tailtrain.planning.sourcing import Delivery, Paths, Whereabouts, deliveries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
    from tailtrain.planning.observed import Observation
    from tailtrain.planning.placement import Placement
    from tailtrain.planning.settings import Settings


@lru_cache(maxsize=1)
def _ring(weights: tuple[tuple[str, float], ...]) -> Ring:
    """The ring of a fleet, which is asked for twice: before its paths are known, and after."""
    return Ring(dict(weights))


@dataclass(frozen=True)
class Distribution:
    """The chunks of all declared data sets, and what becomes of them.

    Attributes:
        sizes: bytes of every chunk, by its SHA-256.
        wanted: by host, what it is to have: chunks that it owns rows of, copies, held-out ones.
        copies: by host, the chunks that it keeps for others; hosts that keep none are not named.
        lacking: by host that answered, what it is to get.
        deliveries: by host that answered, how that comes to it, in the same order.
    """

    sizes: Mapping[str, int]
    wanted: Mapping[str, tuple[PlannedChunk, ...]]
    copies: Mapping[str, frozenset[str]]
    lacking: Mapping[str, tuple[PlannedChunk, ...]]
    deliveries: Mapping[str, tuple[Delivery, ...]]


def distribution_of(
    settings: Settings,
    weights: Mapping[str, float],
    datasets: Sequence[PlannedDataset],
    placements: Mapping[str, Placement],
    answers: Mapping[str, Observation],
    paths: Paths | None,
) -> Distribution:
    """Who is to have which chunks, and where what is lacking comes from.

    Args:
        settings: the backend, and how many nodes are to have each chunk.
        weights: by node, in inventory order, how much of the copies it should keep.
        datasets: the declared ones.
        placements: by domain, the ranges that each node owns.
        answers: of the hosts that answered.
        paths: between hosts, None where they have not been looked at.
    """
    ring = _ring(tuple(weights.items()))
    wanted: dict[str, dict[str, PlannedChunk]] = {name: {} for name in weights}
    copies: dict[str, frozenset[str]] = {}
    owners: dict[str, list[str]] = defaultdict(list)
    for dataset in datasets:
        train = {chunk.sha256: chunk for chunk in dataset.train}
        owned = {
            name: frozenset(sha256 for sha256, _, _ in placements[dataset.domain].get(name, ()))
            for name in weights
        }
        for name, mine in owned.items():
            for sha256 in mine:
                owners[sha256].append(name)
        kept = copies_of(list(train), owners, ring, settings.replicas)
        everywhere = {chunk.sha256: chunk for chunk in dataset.heldout}
        for name, theirs in wanted.items():
            names = owned[name] | kept.get(name, frozenset())
            theirs.update((sha256, chunk) for sha256, chunk in train.items() if sha256 in names)
            theirs.update(everywhere)
        for name, others in kept.items():
            copies[name] = copies.get(name, frozenset()) | others
    to_have = {name: tuple(chunks.values()) for name, chunks in wanted.items()}
    lacking = {
        name: tuple(chunk for chunk in to_have[name] if chunk.sha256 not in answers[name].chunks)
        for name in weights
        if name in answers
    }
    needed = {chunk.sha256 for chunks in lacking.values() for chunk in chunks}
    holders: dict[str, list[str]] = defaultdict(list)
    for name in weights:
        if name in answers:
            for sha256 in answers[name].chunks & needed:
                holders[sha256].append(name)
    where = Whereabouts(lacking, holders, owners, paths)
    return Distribution(
        sizes={chunk.sha256: chunk.bytes for d in datasets for chunk in (*d.train, *d.heldout)},
        wanted=to_have,
        copies=copies,
        lacking=lacking,
        deliveries=deliveries(settings.training.storage_backend, where),
    )
