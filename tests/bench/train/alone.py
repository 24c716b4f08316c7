"""Runs on a host: how fast the node trains with nobody else, by the worker's own Trainer.

    python alone.py WORKER_JSON

Says `ready` when it is warm. Then each line on standard input is a number of seconds: it trains that long on
the node's own share, and prints one line of JSON: tokens, and the seconds that they took.
"""

import json
import sys
import time
from pathlib import Path

from tailtrain.worker.config import load_config
from tailtrain.worker.reading.supply import Supply
from tailtrain.worker.trainer import Trainer

WARM_SECONDS = 2.0


def main() -> None:
    """Train for as long as each line says."""
    config = load_config(Path(sys.argv[1]))
    supply = Supply(config)
    trainer = Trainer(config, supply.stream)
    supply.read_on({}, {})
    trainer.train_until(time.time() + WARM_SECONDS, 0.0, lambda: False)
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.time()
        work = trainer.train_until(began + float(line), 0.0, lambda: False)
        print(json.dumps({"tokens": work.tokens, "seconds": time.time() - began}), flush=True)


if __name__ == "__main__":
    main()
