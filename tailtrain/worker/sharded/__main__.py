"""`python -m tailtrain.worker.sharded run|aggregate --config FILE`: what the units on a node run.

`agent` and `rank` are run by `run`, not by people. Exit codes: 0 done or stopped as asked, 1 an error that is
told in one line and in status.json, 3 a node was lost in a run that tolerates no loss.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from tailtrain.errors import LostNodeError, PeerError, TailtrainError, UnsupportedError
from tailtrain.worker.sharded.config import ShardedConfig, load_sharded
from tailtrain.worker.sharded.network import die_with_parent

EXIT_LOST_NODE = 3


def main() -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tailtrain.worker.sharded", description="Runs on a node.")
    parser.add_argument("command", choices=["run", "aggregate", "agent", "rank"])
    parser.add_argument("--config", type=Path, required=True, help="this node's sharded.json")
    parser.add_argument("--host", help="of agent: the node that holds the rendezvous")
    parser.add_argument("--parent", type=int, help="of agent and rank: the process that they end with")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        die_with_parent(arguments.parent)
    try:
        config = load_sharded(arguments.config)
        if arguments.command == "rank":
            return _rank(config)
        return _other(arguments, config)
    except TailtrainError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_LOST_NODE if isinstance(error, LostNodeError) else 1


def _other(arguments: argparse.Namespace, config: ShardedConfig) -> int:
    # torch takes seconds to import on a small host; the supervisor does without.
    if arguments.command == "run":
        from tailtrain.worker.sharded.supervisor import Supervisor  # noqa: PLC0415

        Supervisor(arguments.config, config).run()
        return 0
    if arguments.command == "agent":
        from tailtrain.worker.sharded.agent import run_agent  # noqa: PLC0415

        return run_agent(arguments.config, config, arguments.host)
    from tailtrain.worker.sharded.final import aggregate  # noqa: PLC0415

    aggregate(config, sys.stdin.buffer.read())
    return 0


def _rank(config: ShardedConfig) -> int:
    """Run this node's rank; never returns by an error that the next start may get over."""
    os.environ["OMP_NUM_THREADS"] = str(config.worker.threads)
    from tailtrain.worker.sharded.rank import place_from_environment, run_rank  # noqa: PLC0415
    from tailtrain.worker.sharded.supervisor import leave_fatal  # noqa: PLC0415

    code = 1
    try:
        run_rank(config, place_from_environment())
        code = 0
    except UnsupportedError as error:
        print(f"{error}; meets the others again", file=sys.stderr)
    except TailtrainError as error:
        # Another node that is turned away leaves, so this one only has to meet the others again.
        if isinstance(error, PeerError) and error.host != config.worker.node:
            print(f"{error}; meets the others again", file=sys.stderr)
        else:
            leave_fatal(config, error)
    except (RuntimeError, TimeoutError) as error:
        line = str(error).strip().partition("\n")[0]
        print(f"a peer is gone, meets the others again: {line}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - a fault of this program would come back at every start
        traceback.print_exc()
        leave_fatal(config, error)
    sys.stderr.flush()
    # gloo's threads may still wait for a peer that is gone; nothing is left that they could do.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
