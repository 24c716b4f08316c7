"""One node of an averaging, as a process of its own: averages a known vector, saves the mean.

Usage: average_once.py CONFIG TOKENS SIZE OUT [OPTIONS]
OPTIONS is a JSON object:
    group: names; it averages with those alone, once, and saves the error if that fails.
    base: it began from weights that all know, which its vector differs little from.
    broken: what becomes of its weights in the averager: nan or large.
Saves the mean as OUT, the members' names as OUT.group, and OUT.said with errors and moved bytes as JSON.
"""

from __future__ import annotations

import json
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
from tailtrain.worker.reading.supply import load_shards
from tailtrain.worker.weights import weights_sha256

if TYPE_CHECKING:
    from tailtrain.worker.exchange import Averaged

ZERO = "0" * 64


def vector_of(node: str, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(node.encode()))
    return torch.randn(size, generator=generator)


def main(config_path: str, tokens: str, size: str, out: str, options: str = "{}") -> None:
    from tailtrain.worker.peers.swarm import open_swarm  # noqa: PLC0415 - tests import this module for its vectors

    config, asked = load_config(Path(config_path)), json.loads(options)
    base = vector_of("base", int(size))
    vector = vector_of(config.node, int(size))
    if asked.get("base"):
        vector = base + 0.01 * vector
    swarm = open_swarm(config, int(size), load_shards(config), lambda: ({}, [base]))
    peers = {peer.node for peer in config.coordination.peers}
    said = Announcement(config.node, "ready", -1, ZERO, -1, 0.0, 0, 0.0, time.time())
    swarm.announce(said)
    while set(swarm.view()) != peers:
        swarm.introduce(peers)
        time.sleep(0.3)
        swarm.announce(said)
    digest = weights_sha256(base) if asked.get("base") else ZERO
    own = Contribution(
        config.node, 0, Entry(), int(tokens), 0, 1.0, 1.0, 1.0, 1.0, time.time(), digest, {}, {}, {}
    )
    result: Averaged | None = None
    group = tuple(asked.get("group", config.nodes))
    bits = group_bits(group, own.round) if "group" in asked else None
    expected = len(group)
    errors: list[str] = []
    Path(f"{out}.begun").touch()
    while result is None and len(errors) < 20:
        attempt = swarm.average(vector, own, expected, bits)
        if broken := asked.get("broken"):
            with swarm._averager.get_tensors() as (shared,):
                shared.mul_(float("nan") if broken == "nan" else 100.0)
        try:
            while result is None:
                result = attempt.wait(0.05)
        except PeerError as error:
            print(f"failed: {error}", flush=True)
            errors.append(str(error))
            if "group" in asked:
                break
    if result is not None:
        Path(f"{out}.group").write_text(" ".join(sorted(result.group)))
        result.mean.numpy().tofile(out)
    moved = result.moved_bytes if result is not None else 0
    Path(f"{out}.said").write_text(json.dumps({"errors": errors, "moved": moved, "at": time.time()}))
    time.sleep(2.0)
    swarm.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
