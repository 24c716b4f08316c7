"""Shards of a small fleet, and strategies for how far they have been read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tailtrain.worker.data_config import RowRange
from tailtrain.worker.reading.reading_progress import Place, Progress, ShardProgress, progress_of
from tailtrain.worker.reading.shards import Shard, Shards

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES = ("architect", "coder", "judge", "qfox")
DOMAINS = ("coding", "natural")
# Ranges of each node in each domain: some of many shelves, one of a single shelf, one of none.
COUNTS = {"architect": 9, "coder": 45, "judge": 3, "qfox": 0}
ROWS = 10


def shard(domain: str, node: str, *, seed: int = 1) -> Shard:
    ranges = [RowRange(f"{node}{domain}{index}", 0, ROWS + index) for index in range(COUNTS[node])]
    return Shard(domain, node, ranges, seed=seed)


def shards(node: str = "coder", *, taken_over: bool = True) -> Shards:
    return Shards(node, [shard(domain, name) for domain in DOMAINS for name in NODES], taken_over=taken_over)


SHARDS = shards()


places = st.builds(
    lambda record, window: Place(record, window, min(record + window, ROWS)),
    st.integers(0, ROWS - 1),
    st.integers(0, 5),
)


@st.composite
def shard_views(draw: st.DrawFn, of: Shard) -> ShardProgress:
    """How far one shard may have been read."""
    if not of.size:
        return ShardProgress()
    epoch = draw(st.integers(0, 2))
    finished = draw(st.frozensets(st.integers(0, of.size - 1)))
    begun = draw(st.dictionaries(st.integers(0, of.size - 1), places))
    return progress_of(epoch, finished, begun, of.size)


def views() -> st.SearchStrategy[Progress]:
    """How far all shards may have been read."""
    return st.fixed_dictionaries({}, optional={key: shard_views(one) for key, one in SHARDS.by_key.items()})


def groups(nodes: Sequence[str] = NODES) -> st.SearchStrategy[dict[str, float]]:
    """Members of an averaging and their speeds."""
    speeds = st.one_of(st.just(0.0), st.floats(0.1, 1e6))
    return st.dictionaries(st.sampled_from(nodes), speeds, min_size=1)
