"""Plain data-parallel training, as torch's own tutorial has it: DistributedDataParallel over gloo.

    torchrun ... ddp.py WORKER_JSON LOG

The model, the batch of each node, the learning rate and the data are the worker's. Every step all nodes
average all gradients, so every step takes as long as the slowest node's. Rank 0 writes a line for each step:
the time and the tokens of all nodes so far. Runs until it is ended.
"""

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tailtrain.worker.config import load_config
from tailtrain.worker.model import build_model, next_byte_loss


def main() -> None:
    """Train."""
    config = load_config(Path(sys.argv[1]))
    torch.set_num_threads(config.threads)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(build_model(config.model, config.seed))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.training.learning_rate)
    chunks = sorted(path for path in config.chunk_dir.iterdir() if not path.name.startswith("."))
    texts = [text for path in chunks for text in pq.read_table(path).column("text").to_pylist()]
    data = np.frombuffer("\0".join(texts).encode(), np.uint8)
    choose = np.random.default_rng(rank)
    size, context = config.training.batch_size, config.model.context
    with Path(sys.argv[2]).open("w", buffering=1) as log:
        for step in range(1, sys.maxsize):
            starts = choose.integers(0, len(data) - context - 1, size)
            window = np.stack([data[start : start + context + 1] for start in starts])
            loss = next_byte_loss(model, torch.from_numpy(window).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                log.write(f"{time.time()} {step * size * context * world}\n")


if __name__ == "__main__":
    main()
