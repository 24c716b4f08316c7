"""How chunks lie together in packs on a storage backend.

A backend such as Google Drive takes about two files a second, whatever their size, so chunks are stored in
packs: chunk after chunk, nothing between them. Which chunks make a pack follows from the manifest alone, so
whoever has the manifest knows where each chunk is, and there is no index that could be lost or differ.

Standard library only: nodes use this too.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PACK_FOLDER = "packs"
"""Where packs are, in the backend's folder."""

_LEAST_BYTES, _MOST_BYTES, _WANTED_PACKS = 32 << 20, 256 << 20, 1024


class Place(NamedTuple):
    """Where a chunk lies: its pack, and its first byte in it."""

    pack: str
    offset: int


class Pack(NamedTuple):
    """One file of the backend.

    Attributes:
        name: SHA-256 over the names of its chunks; these vouch for their bytes, so it vouches for its own.
        size: in bytes.
        chunks: SHA-256 and bytes of each chunk, in the order in which they lie.
    """

    name: str
    size: int
    chunks: tuple[tuple[str, int], ...]


def packs_of(chunks: Sequence[tuple[str, int]]) -> tuple[Pack, ...]:
    """Group chunks, in their order, into packs of at most clamp(total / 1024, 32 MiB, 256 MiB).

    A chunk that is larger than that is a pack of its own.

    Args:
        chunks: SHA-256 and bytes of each chunk of a data set, in the manifest's order.
    """
    most = min(max(sum(size for _, size in chunks) // _WANTED_PACKS, _LEAST_BYTES), _MOST_BYTES)
    packs: list[Pack] = []
    group: list[tuple[str, int]] = []
    filled = 0
    for sha256, size in chunks:
        if group and filled + size > most:
            packs.append(_pack(group))
            group, filled = [], 0
        group.append((sha256, size))
        filled += size
    if group:
        packs.append(_pack(group))
    return tuple(packs)


def places_of(packs: Iterable[Pack]) -> Mapping[str, Place]:
    """Where each chunk of these packs lies."""
    places = {}
    for pack in packs:
        offset = 0
        for sha256, size in pack.chunks:
            places[sha256] = Place(pack.name, offset)
            offset += size
    return places


def _pack(chunks: Sequence[tuple[str, int]]) -> Pack:
    name = hashlib.sha256("".join(sha256 for sha256, _ in chunks).encode()).hexdigest()
    return Pack(name, sum(size for _, size in chunks), tuple(chunks))
