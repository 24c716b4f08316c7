"""`python -m tailtrain.worker.sharded run|aggregate --config FILE`: what the units on a node run.

`agent` is run by `run`, not by people. Exit codes: 0 done or stopped as asked, 1 an error that is
told in one line and in status.json, 3 a node was lost in a run that tolerates no loss.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tailtrain.errors import LostNodeError, TailtrainError
from tailtrain.worker.sharded.config import ShardedConfig, load_sharded
from tailtrain.worker.sharded.network import die_with_parent

EXIT_LOST_NODE = 3


def main() -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tailtrain.worker.sharded", description="Runs on a node.")
    parser.add_argument("command", choices=["run", "aggregate", "agent"])
    parser.add_argument("--config", type=Path, required=True, help="this node's sharded.json")
    parser.add_argument("--report", type=int, help="of agent: the descriptor to say on that it needs a host")
    parser.add_argument("--parent", type=int, help="of agent: the process that it ends with")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        die_with_parent(arguments.parent)
    try:
        config = load_sharded(arguments.config)
        return _run(arguments, config)
    except TailtrainError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_LOST_NODE if isinstance(error, LostNodeError) else 1


def _run(arguments: argparse.Namespace, config: ShardedConfig) -> int:
    # torch takes seconds to import on a small host; the supervisor does without.
    if arguments.command == "run":
        from tailtrain.worker.sharded.supervisor import Supervisor  # noqa: PLC0415

        Supervisor(arguments.config, config).run()
        return 0
    if arguments.command == "agent":
        from tailtrain.worker.sharded.agent import run_agent  # noqa: PLC0415

        hosts = (line.strip() for line in sys.stdin)
        return run_agent(arguments.config, config, hosts, lambda: _report(arguments.report))
    from tailtrain.worker.sharded.final import aggregate  # noqa: PLC0415

    aggregate(config, sys.stdin.buffer.read())
    return 0


def _report(descriptor: int) -> None:
    os.write(descriptor, b"\n")


if __name__ == "__main__":
    sys.exit(main())
