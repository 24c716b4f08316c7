"""Whether this node can get data that is not its own: one random chunk, fetched and verified.

It is a chunk of which this node owns no row, and it comes from the storage backend, or where there is none
from a node that keeps a copy. It is fetched into a folder of its own, so that a copy on this node proves
nothing.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtrain.errors import TailtrainError
from tailtrain.worker.reading.fetching import REMOTE, open_puller

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.reading.manifests import Chunk, DataSet


def try_to_fetch(config: WorkerConfig, data_sets: Mapping[str, DataSet]) -> dict[str, Any]:
    """Fetch a chunk that this node does not own, the same each time it is tried.

    Gives `chunk` (SHA-256), `source` (a node, or "remote"), `bytes`, `seconds`, and `error` in plain words if
    no source gave it. `chunk` is None where there is none to try: this node owns rows of all chunks.
    """
    choose = random.Random(f"{config.run_id}/{config.node}")  # noqa: S311 - a choice, not a secret
    foreign = _foreign(config, data_sets)
    result: dict[str, Any] = {"chunk": None, "source": None, "bytes": 0, "seconds": 0.0, "error": None}
    if not foreign:
        return result
    chunk = choose.choice(foreign)
    result["chunk"] = chunk.sha256
    order = [peer.node for peer in config.coordination.peers]
    choose.shuffle(order)
    if config.storage.remote is not None:
        order = [REMOTE]
    try:
        with (
            tempfile.TemporaryDirectory(prefix="availability-", dir=config.run_dir) as folder,
            closing(open_puller(config, data_sets.values(), Path(folder))) as puller,
        ):
            fetched = puller.fetch(chunk.sha256, chunk.size, order)
        result |= {"source": fetched.source, "bytes": fetched.bytes, "seconds": round(fetched.seconds, 3)}
    except (TailtrainError, OSError) as error:
        result["error"] = str(error)
    return result


def _foreign(config: WorkerConfig, data_sets: Mapping[str, DataSet]) -> Sequence[Chunk]:
    """The training chunks of which this node owns no row."""
    own = {owned.chunk for domain in config.data for owned in domain.ranges}
    return [
        chunk for domain in config.data for chunk in data_sets[domain.domain].train if chunk.sha256 not in own
    ]
