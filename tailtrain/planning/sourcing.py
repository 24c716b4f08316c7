"""Where each chunk comes from that a host lacks.

    local                    from the control machine; copies and held-out records from a node on a direct
                             path that has them, or will have had them first
    s3                       from the bucket
    googleDriveTopological   a node on a direct path that has it, then Google Drive, then a node on a relayed
                             path

A chunk that no node has comes from the backend (or the control machine) once, to the node that owns it, and
from there to the others in a second wave. What a host cannot get from its first source it tries to get from
the next, so the order is part of the plan.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.spec import StorageBackend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailtrain.planning.datasets import PlannedChunk

CONTROL = "control"
"""The machine that deploys, as a source: it sends, nobody fetches from it."""

REMOTE = "remote"
"""The storage backend, as a source."""

DIRECT, RELAYED = "direct", "relayed"

Paths = dict[str, dict[str, str]]
"""For a host, the path to each other one: direct, relayed, or not named where there is none known."""


@dataclass(frozen=True)
class Delivery:
    """How a chunk comes to a host.

    Attributes:
        chunk: which.
        sources: names of nodes, `REMOTE` or `CONTROL`, in the order in which they are tried.
        wave: 1, or 2 where the first source gets the chunk in this deploy itself.
        why: why the first source is the first.
    """

    chunk: PlannedChunk
    sources: tuple[str, ...]
    wave: int
    why: str

    @property
    def sent(self) -> bool:
        """Whether the control machine sends it."""
        return self.sources[0] == CONTROL


@dataclass(frozen=True)
class Whereabouts:
    """Who has and who lacks what.

    Attributes:
        lacking: by host, in inventory order, the chunks that it is to get.
        holders: by chunk, the hosts that have it, verified, in inventory order.
        owners: by chunk, the hosts that train on rows of it.
        paths: between hosts; None where they have not been looked at: all count as direct then.
    """

    lacking: Mapping[str, Sequence[PlannedChunk]]
    holders: Mapping[str, Sequence[str]]
    owners: Mapping[str, Sequence[str]]
    paths: Paths | None

    def path(self, host: str, other: str) -> str:
        """How one host reaches another; empty where it does not, or nobody knows."""
        return DIRECT if self.paths is None else self.paths.get(host, {}).get(other, "")


def deliveries(backend: StorageBackend, where: Whereabouts) -> dict[str, tuple[Delivery, ...]]:
    """How each lacking chunk comes to each host, in the order in which the host lacks them."""
    needers: dict[str, list[str]] = defaultdict(list)
    chunks: dict[str, PlannedChunk] = {}
    for host, lacking in where.lacking.items():
        for chunk in lacking:
            needers[chunk.sha256].append(host)
            chunks[chunk.sha256] = chunk
    found = {
        (host, sha256): delivery
        for turn, (sha256, hosts) in enumerate(needers.items())
        for host, delivery in _of_chunk(backend, chunks[sha256], hosts, where, turn)
    }
    return {
        host: tuple(found[host, chunk.sha256] for chunk in lacking) for host, lacking in where.lacking.items()
    }


def _of_chunk(
    backend: StorageBackend, chunk: PlannedChunk, hosts: Sequence[str], where: Whereabouts, turn: int
) -> Iterator[tuple[str, Delivery]]:
    """The deliveries of one chunk; `turn` spreads what anybody could do over those who can."""
    owners = where.owners.get(chunk.sha256, ())
    holders = where.holders.get(chunk.sha256, ())
    base = CONTROL if backend is StorageBackend.LOCAL else REMOTE
    seeder: str | None = None
    for host in sorted(_turned(hosts, turn), key=lambda host: host not in owners):
        near = _turned([each for each in holders if where.path(host, each) == DIRECT], turn)
        far = tuple(each for each in holders if where.path(host, each) == RELAYED)
        if backend is StorageBackend.S3:
            yield host, Delivery(chunk, (REMOTE, *near, *far), 1, "it has all of them")
        elif base is CONTROL and host in owners:
            seeder = seeder or host
            yield host, Delivery(chunk, (CONTROL,), 1, "own shares")
        elif near:
            yield host, Delivery(chunk, (*near, base, *far), 1, "has it, on a direct path")
        elif seeder is not None and where.path(host, seeder) == DIRECT:
            yield host, Delivery(chunk, (seeder, base, *far), 2, "gets it first, on a direct path")
        else:
            relayed = far or (seeder is not None and where.path(host, seeder) == RELAYED)
            why = "rather than by a relayed path" if relayed else "no node on a direct path has it"
            seeder = seeder or host
            yield host, Delivery(chunk, (base, *far), 1, why)


def _turned(items: Sequence[str], turn: int) -> tuple[str, ...]:
    start = turn % len(items) if items else 0
    return (*items[start:], *items[:start])


def paths_to_ask(planned: Mapping[str, Sequence[Delivery]], most: int) -> dict[str, tuple[str, ...]]:
    """For each host, the nodes that it would fetch from, the most used first: their paths must be known."""
    asked = {}
    for host, each in planned.items():
        uses: dict[str, int] = defaultdict(int)
        for delivery in each:
            for source in delivery.sources:
                if source not in (CONTROL, REMOTE):
                    uses[source] += 1
        if uses:
            asked[host] = tuple(sorted(uses, key=lambda name: (-uses[name], name))[:most])
    return asked
