"""What runs for the whole of a run on a node: keeps an agent going, wherever the rendezvous is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.errors import LostNodeError, WorkerError
from tailtrain.worker.files import canonical_json, write_atomically
from tailtrain.worker.sharded.beacon import Beacon, hear
from tailtrain.worker.sharded.rendezvous import OrderedChooser
from tailtrain.worker.sharded.status import ShardedStatus
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.sharded.rendezvous import RendezvousChooser

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_STOP_SECONDS = 8.0
_FATAL = "fatal.json"


class Supervisor:
    """Runs this node's part until the run is finished or the node is told to stop.

    Args:
        path: the configuration's file.
        config: what it says.
        chooser: says where the rendezvous is.
    """

    def __init__(self, path: Path, config: ShardedConfig, chooser: RendezvousChooser | None = None) -> None:
        self._path, self._config = path, config
        self._chooser = chooser or OrderedChooser(config)
        self._status = ShardedStatus(config, start=True)
        self._stopping = False
        self._fatal = config.worker.run_dir / _FATAL
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def run(self) -> None:
        """Until finished, or stopped as asked.

        Raises:
            WorkerError: this node cannot take part; the status says failed, and why.
            LostNodeError: a node was lost, in a run that tolerates none.
        """
        if self._status.read().get("state") == "finished":
            log("the run is finished")
            return
        self._fatal.unlink(missing_ok=True)
        self._status.set("starting", "looks for the other nodes")
        beacon = Beacon(self._config)
        try:
            self._keep_going(beacon)
        except WorkerError as error:
            self._status.set("failed", str(error))
            raise
        finally:
            beacon.close()

    def _keep_going(self, beacon: Beacon) -> None:
        while not self._stopping:
            host = self._chooser.choose()
            beacon.host = host
            if host is None:
                order = ", ".join(self._config.rendezvous_order)
                self._status.set("waiting", f"waits for a node that may hold the rendezvous: {order}")
                time.sleep(_LOOK_SECONDS)
                continue
            finished = self._one_agent(host)
            beacon.host = None
            self._raise_if_fatal()
            if finished:
                return
            # Long enough for all to see that this rendezvous ended.
            time.sleep(_PAUSE_SECONDS)
        self._status.set("stopped", "was told to stop; the run can be resumed")

    def _one_agent(self, host: str) -> bool:
        """Run an agent until it ends; whether the run is finished."""
        command = [sys.executable, "-m", "tailtrain.worker.sharded", "agent"]
        arguments = ["--config", str(self._path), "--host", host, "--parent", str(os.getpid())]
        # torch's own words on a lost peer are stack traces; this package says it in one line.
        environment = {**os.environ, "TORCH_CPP_LOG_LEVEL": "FATAL"}
        agent = subprocess.Popen([*command, *arguments], stdin=subprocess.DEVNULL, env=environment)
        looked = 0.0
        while agent.poll() is None:
            if self._stopping or self._fatal.exists():
                _end(agent)
                break
            if time.monotonic() - looked > _LOOK_SECONDS:
                self._say_what_it_waits_for(host)
                looked = time.monotonic()
            time.sleep(_POLL_SECONDS)
        return agent.returncode == 0 and not self._stopping

    def _say_what_it_waits_for(self, host: str) -> None:
        """While no rank runs here, say who is there and who is not."""
        said = self._status.read()
        if said.get("state") == "finished" or _is_alive(said.get("rank_pid")):
            return
        config = self._config
        there = {config.worker.node, *hear(config)}
        missing = [node.node for node in config.nodes if node.node not in there]
        enough = len(there) >= config.min_nodes
        message = f"meets the others at {host}"
        if missing:
            message += f"; {', '.join(missing)} not there"
        if not enough:
            message += f"; training needs {config.min_nodes} nodes"
        self._status.set("waiting" if enough else "paused", message, members=sorted(there))

    def _raise_if_fatal(self) -> None:
        with suppress(FileNotFoundError):
            raw = json.loads(self._fatal.read_bytes())
            kind = LostNodeError if raw["lost_node"] else WorkerError
            raise kind(raw["problem"])

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True


def leave_fatal(config: ShardedConfig, error: Exception) -> None:
    """From the rank to the supervisor: this node cannot go on, so it must not be started again."""
    content = {"problem": str(error), "lost_node": isinstance(error, LostNodeError)}
    write_atomically(config.worker.run_dir / _FATAL, canonical_json(content))


def _end(agent: subprocess.Popen[bytes]) -> None:
    """End an agent, which ends its rank; by force where it does not listen."""
    agent.terminate()
    try:
        agent.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        log("the agent did not end when told to; ended by force")
        agent.kill()
        agent.wait()


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
