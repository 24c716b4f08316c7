"""Everything between chunk files and batches on one node: whose data is whose, what is here, what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.worker.reading.batches import BatchStream
from tailtrain.worker.reading.fetching import ChunkFetcher
from tailtrain.worker.reading.manifests import load_data_set
from tailtrain.worker.reading.reading_progress import NOTHING_READ
from tailtrain.worker.reading.records import ChunkStore
from tailtrain.worker.reading.shards import Shards, shards_of
from tailtrain.worker.reading.takeover import parts_of
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.reading.reading_progress import Progress
    from tailtrain.worker.reading.takeover import Parts


class Supply:
    """This node's data.

    Args:
        config: this node's configuration.
        say: told in plain words what is being fetched; nothing when nothing is.

    Attributes:
        shards: all shards of the run.
        stream: the batches.
        fetcher: gets chunks that are not here.
        idle: in plain words, why nothing is read in this round; empty otherwise.

    Raises:
        WorkerError: a manifest is missing or damaged, or the configuration does not fit it.
    """

    def __init__(self, config: WorkerConfig, say: Callable[[str], None] = log) -> None:
        data_sets = {domain.domain: load_data_set(config.state_dir, domain) for domain in config.data}
        self.shards = shards_of(config, data_sets)
        store = ChunkStore(config.chunk_dir)
        self.fetcher = ChunkFetcher(config, tuple(data_sets.values()), store, say)
        self.idle = ""
        self._dealt: tuple[Progress, Parts] = ({}, {})
        self.stream = BatchStream(self.shards, store, context=config.model.context, fetch=self.fetcher.want)

    def read_on(self, progress: Progress, group: Mapping[str, float]) -> None:
        """Read what is this node's to read after an averaging of all, until the next.

        Args:
            progress: how far all shards have been read.
            group: tokens per second of each of its members; of none before the first.
        """
        parts = parts_of(self.shards, progress, group)
        self.idle = ""
        if not parts:
            away = bool(self.shards.own)
            self.idle = "reads nothing: " + (
                "what it owns is with the others until the next round" if away else "it owns no records"
            )
        self.fetcher.present(group)
        self._dealt = (progress, parts)
        self.stream.assign(progress, parts)

    def go_back(self, progress: Progress) -> None:
        """Read on from here what was dealt in the last averaging of all."""
        dealt, parts = self._dealt
        begun = {key: progress.get(key, NOTHING_READ).epoch for key in parts}
        self.stream.assign(
            progress,
            {  # shelves of an epoch that is over since were read by those who have them
                key: part
                for key, part in parts.items()
                if part is None or begun[key] == dealt.get(key, NOTHING_READ).epoch
            },
        )

    def stand_by(self, progress: Progress, why: str) -> None:
        """Read nothing until the next averaging of all."""
        self.idle = f"reads nothing: {why}"
        self.stream.assign(progress, {})


def load_shards(config: WorkerConfig) -> Shards:
    """All shards of a run; WorkerError as for `Supply`."""
    return shards_of(
        config, {domain.domain: load_data_set(config.state_dir, domain) for domain in config.data}
    )
