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
from tailtrain.worker.sharded.gossip import open_hearing
from tailtrain.worker.sharded.hearing import Word, held_by
from tailtrain.worker.sharded.rendezvous import Chooser
from tailtrain.worker.sharded.status import ShardedStatus
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import FrameType

    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.sharded.hearing import Hearing

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_SILENT_SECONDS = 4.0
_GOODBYE_SECONDS = 5.0  # for whoever waits for this node to hear it
_FATAL = "fatal.json"


class _OverError(Exception):
    """The others finished the run while this node was away."""


class Supervisor:
    """Runs this node's part until the run is finished or the node is told to stop.

    Args:
        path: the configuration's file.
        config: what it says.
    """

    def __init__(self, path: Path, config: ShardedConfig) -> None:
        self._path, self._config = path, config
        self._status = ShardedStatus(config, start=True)
        self._stopping = False
        self._agent: AgentProcess | None = None
        self._fatal = config.worker.run_dir / _FATAL
        self._shown: tuple[object, ...] = ()
        self._heard: dict[str, float] = {}
        self._elsewhere = False
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
        hearing = None
        try:
            hearing = open_hearing(self._config)
            self._keep_going(hearing)
        except _OverError:
            self._status.set("finished", "the others finished the run; this node was not there at its end")
            if hearing is not None:
                hearing.tell(None, finished=True)
                time.sleep(_GOODBYE_SECONDS)
        except WorkerError as error:
            self._status.set("failed", str(error))
            raise
        finally:
            if self._agent is not None:
                self._agent.end()
            if hearing is not None:
                hearing.close()

    def _keep_going(self, hearing: Hearing) -> None:
        chooser = Chooser(hearing, self._config.rendezvous_order[0])
        while not self._stopping:
            host, words = chooser.choose()
            self._raise_if_over(words)
            hearing.tell(host)
            if host is None:
                self._status.set("waiting", hearing.why())
                time.sleep(_LOOK_SECONDS)
                continue
            finished = self._one_rendezvous(hearing, host)
            hearing.tell(None, finished=finished)
            self._raise_if_fatal()
            if finished:
                self._stay_for_those_away(hearing)
                return
            # Long enough for all to see that this rendezvous ended.
            time.sleep(_PAUSE_SECONDS)
        self._status.set("stopped", "was told to stop; the run can be resumed")

    def _one_rendezvous(self, hearing: Hearing, host: str) -> bool:
        """Take part in a rendezvous until it ends; whether the run is finished."""
        agent = self._agent = self._agent or AgentProcess(self._path)
        agent.meet_at(host)
        looked, self._elsewhere = 0.0, False
        while agent.running and not agent.rendezvous_ended():
            if self._stopping or self._fatal.exists() or self._elsewhere or host in hearing.dead:
                agent.end()
                break
            self._end_waits_for(hearing.dead)
            if time.monotonic() - looked > _LOOK_SECONDS:
                self._look_around(hearing, host)
                looked = time.monotonic()
            time.sleep(_POLL_SECONDS)
        self._agent = agent if agent.running else None
        if self._agent is None:
            agent.close()
        return agent.finished and not self._stopping

    def _end_waits_for(self, dead: frozenset[str]) -> None:
        """End the rank that trains with a node that is dead: it would wait until torch gives up."""
        if not dead:
            return
        said = self._status.read()
        gone, rank = ", ".join(sorted(dead & set(said.get("members", ())))), said.get("rank_pid")
        if gone and said.get("state") == "training" and isinstance(rank, int) and _is_alive(rank):
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
            self._status.set("waiting", f"{gone} is dead; meets the others again", members=[])

    def _look_around(self, hearing: Hearing, host: str) -> None:
        """Show how far this node is; while no rank runs here, say who is there and who is not."""
        said = self._status.read()
        shown = (said.get("round", -1), said.get("state"))
        if shown != self._shown:
            hearing.show(int(said.get("round", -1)), float(said.get("tokens_per_second") or 0.0))
            self._shown = shown
        if said.get("state") == "finished" or _is_alive(said.get("rank_pid")):
            return
        words, config = hearing.hear(), self._config
        self._raise_if_over(words)
        own = config.worker.node
        holding = {**words, own: Word(config.worker.run_id, own, host)} if host == own else words
        held = held_by(config.rendezvous_order, holding)
        # A parted network leaves two that hold it: all go to the first of them.
        self._elsewhere = held is not None and held != host
        now = time.monotonic()
        self._heard |= dict.fromkeys(words, now)
        # A node that is starved of its processor answers late, and is there all the same.
        there = {config.worker.node, *(n for n, at in self._heard.items() if now - at < _SILENT_SECONDS)}
        missing = [node.node for node in config.nodes if node.node not in there]
        enough = len(there) >= config.min_nodes
        message = f"meets the others at {host}"
        if missing:
            message += f"; {', '.join(missing)} not there"
        if not enough:
            message += f"; training needs {config.min_nodes} nodes"
        self._status.set("waiting" if enough else "paused", message, members=sorted(there))

    def _stay_for_those_away(self, hearing: Hearing) -> None:
        """One of those that finished the run stays until the others know it, or it is told to stop."""
        config, members = self._config, set(self._status.read().get("members", ()))
        away = {node.node for node in config.nodes} - members
        if next(node for node in config.rendezvous_order if node in members) != config.worker.node:
            return
        while away and not self._stopping:
            away -= {node for node, word in hearing.hear().items() if word.finished}
            time.sleep(_LOOK_SECONDS)

    def _raise_if_over(self, words: Mapping[str, Word]) -> None:
        # A deploy brings the final model to nodes that were away too.
        final = self._config.worker.run_dir / "final" / "manifest.json"
        if any(word.finished for word in words.values()) or final.is_file():
            raise _OverError

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
