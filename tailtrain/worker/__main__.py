"""`python -m tailtrain.worker train|validate|aggregate --config FILE`: what the units on a node run.

Exit codes: 0 done or stopped as asked, 1 an error that is told in one line and in status.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Before hivemind is imported: its own notes are for its developers; what matters is told by this package.
os.environ.setdefault("HIVEMIND_LOGLEVEL", "CRITICAL")

from tailtrain.errors import LostNodeError, TailtrainError
from tailtrain.worker.config import WorkerConfig, load_config

# The unit is not started again by itself after this one: the run stands still until a person resumes it.
EXIT_LOST_NODE = 3


def main() -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tailtrain.worker", description="Runs on a node.")
    parser.add_argument("command", choices=["train", "validate", "aggregate"])
    parser.add_argument("--config", type=Path, required=True, help="this node's worker.json")
    arguments = parser.parse_args()
    try:
        config = load_config(arguments.config)
        os.environ.setdefault("OMP_NUM_THREADS", str(config.threads))
        _run(arguments.command, config)
    except TailtrainError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_LOST_NODE if isinstance(error, LostNodeError) else 1
    return 0


def _run(command: str, config: WorkerConfig) -> None:
    # torch takes seconds to import on a small host; a bad configuration is told before that.
    if command == "train":
        from tailtrain.worker.train import train  # noqa: PLC0415

        train(config)
    elif command == "aggregate":
        from tailtrain.worker.aggregate import aggregate  # noqa: PLC0415

        aggregate(config, sys.stdin.buffer.read())
    else:
        from tailtrain.worker.validate import validate  # noqa: PLC0415

        validate(config)


if __name__ == "__main__":
    sys.exit(main())
