"""The process of a rank, forked by torchrun's agent from a server that has imported torch already.

To import torch and its pipelining takes 3 to 6 s on a small host, and every recovery would wait for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path

import torch.distributed as dist

from tailtrain.errors import PeerError, TailtrainError, UnsupportedError
from tailtrain.worker.sharded.config import load_sharded
from tailtrain.worker.sharded.disk import disk_error, is_of_the_disk
from tailtrain.worker.sharded.fatal import leave_fatal


def rank_process(path: str) -> None:
    """Run this node's rank; it returns when the run is finished, and else ends the process.

    Args:
        path: the configuration's file.
    """
    threading.Thread(target=_die_with_agent, daemon=True).start()
    # A rank that waits in gloo for a peer runs no handler of Python's.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The agent imports this module too, but has no use for what trains; the server that forks ranks has it.
    from tailtrain.worker.sharded.rank import place_from_environment, plain, run_rank  # noqa: PLC0415

    config = load_sharded(Path(path))
    try:
        run_rank(config, place_from_environment())
        dist.destroy_process_group()
    except UnsupportedError as error:
        print(f"{error}; meets the others again", file=sys.stderr)
    except TailtrainError as error:
        # Another node that is turned away leaves, so this one only has to meet the others again.
        if isinstance(error, PeerError) and error.host != config.worker.node:
            print(f"{error}; meets the others again", file=sys.stderr)
        else:
            leave_fatal(config, error)
    except (RuntimeError, TimeoutError) as error:
        print(f"a peer is gone, meets the others again: {plain(error)}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - a fault of this program would come back at every start
        if isinstance(error, OSError) and is_of_the_disk(error):
            error = disk_error(config.worker, error)
            print(error, file=sys.stderr)
        else:
            traceback.print_exc()
        leave_fatal(config, error)
    else:
        return
    sys.stderr.flush()
    # gloo's threads may still wait for a peer that is gone; nothing is left that they could do.
    os._exit(1)


def _die_with_agent() -> None:
    """End this process when the agent is gone: its parent, the server that forked it, stays with it."""
    agent = parent_process()
    if agent is not None:
        wait([agent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)
