"""One node of an averaging, as a process of its own: averages a known vector, saves the mean.

Usage: average_once.py CONFIG TOKENS SIZE OUT [GROUP]
With GROUP, names with commas between, it averages with those alone, once, and saves the error if that fails.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tailtrain.errors import PeerError
from tailtrain.worker.announcements import Announcement
from tailtrain.worker.config import load_config
from tailtrain.worker.gossip.pairing import group_bits
from tailtrain.worker.ledger import Contribution, Entry
from tailtrain.worker.supply import load_shards

if TYPE_CHECKING:
    from tailtrain.worker.exchange import Averaged

ZERO = "0" * 64


def vector_of(node: str, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(node.encode()))
    return torch.randn(size, generator=generator)


def main(config_path: str, tokens: str, size: str, out: str, pair: str = "") -> None:
    from tailtrain.worker.swarm import open_swarm  # noqa: PLC0415 - tests import this module for its vectors

    config = load_config(Path(config_path))
    vector = vector_of(config.node, int(size))
    swarm = open_swarm(config, int(size), load_shards(config), lambda: ({}, [vector]))
    swarm.announce(Announcement(config.node, "ready", -1, ZERO, -1, 0.0, 0, 0.0, time.time()))
    peers = {peer.node for peer in config.coordination.peers}
    while set(swarm.view()) != peers:
        swarm.introduce(peers)
        time.sleep(0.5)
        swarm.announce(Announcement(config.node, "ready", -1, ZERO, -1, 0.0, 0, 0.0, time.time()))
    own = Contribution(
        config.node, 0, Entry(), int(tokens), 0, 1.0, 1.0, 1.0, 1.0, time.time(), ZERO, {}, {}, {}
    )
    result: Averaged | None = None
    group = tuple(pair.split(",")) if pair else config.nodes
    bits = group_bits(group, own.round) if pair else None
    expected = len(group)
    Path(f"{out}.begun").touch()
    while result is None:
        attempt = swarm.average(vector, own, expected, bits)
        try:
            while result is None:
                result = attempt.wait(0.2)
        except PeerError as error:
            print(f"failed: {error}", flush=True)
            if pair:
                Path(f"{out}.error").write_text(str(error))
                break
            expected = max(2, expected - 1)
    if result is not None:
        Path(f"{out}.group").write_text(" ".join(sorted(result.group)))
        result.mean.numpy().tofile(out)
    time.sleep(2.0)
    swarm.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
