"""In which order a data set's chunks are shared out: each share has something of many parts of the file.

A node's share is a run of chunks in this order. In the file's own order, a data set that is sorted by source
or by date would give each node another kind of text, and what nodes learn in a round would pull apart. So the
file is seen as 256 to 512 runs of neighbouring chunks (which lie together on a storage backend, and are
fetched together), and the runs are put in the order of hashes: with N nodes alike, a share is of some 400 / N
places. Control machine and nodes work it out alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUNS = 512


class _Named(Protocol):
    @property
    def sha256(self) -> str: ...


Chunk = TypeVar("Chunk", bound=_Named)


def spread(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The chunks in the order in which they are shared out.

    Args:
        chunks: of a data set to train on, in the manifest's order.
    """
    # A power of two: runs stay what they are while a data set grows, until it has doubled.
    length = 1 << ((len(chunks) - 1) // _RUNS).bit_length()
    runs = [chunks[first : first + length] for first in range(0, len(chunks), length)]
    # A name is a hash already.
    return tuple(chunk for run in sorted(runs, key=lambda run: run[0].sha256) for chunk in run)
