"""What runs for the whole of a run on a node: keeps an agent going, wherever the rendezvous is."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.errors import LostNodeError, WorkerError
from tailtrain.worker.files import canonical_json, write_atomically
from tailtrain.worker.sharded.agent_process import AgentProcess
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
        self._agent: AgentProcess | None = None
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
            if self._agent is not None:
                self._agent.end()
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
            finished = self._one_rendezvous(host)
            beacon.host = None
            self._raise_if_fatal()
            if finished:
                return
            # Long enough for all to see that this rendezvous ended.
            time.sleep(_PAUSE_SECONDS)
        self._status.set("stopped", "was told to stop; the run can be resumed")

    def _one_rendezvous(self, host: str) -> bool:
        """Take part in a rendezvous until it ends; whether the run is finished."""
        agent = self._agent or AgentProcess(self._path)
        agent.meet_at(host)
        looked = 0.0
        while agent.running and not agent.rendezvous_ended():
            if self._stopping or self._fatal.exists():
                agent.end()
                break
            if time.monotonic() - looked > _LOOK_SECONDS:
                self._say_what_it_waits_for(host)
                looked = time.monotonic()
            time.sleep(_POLL_SECONDS)
        self._agent = agent if agent.running else None
        if self._agent is None:
            agent.close()
        return agent.finished and not self._stopping

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
