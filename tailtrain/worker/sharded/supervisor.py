"""What runs for the whole of a run on a node: keeps an agent going, wherever the rendezvous is."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.errors import WorkerError
from tailtrain.worker.sharded.agent_process import AgentProcess
from tailtrain.worker.sharded.checkpoints import remove_halves
from tailtrain.worker.sharded.disk import disk_error, is_of_the_disk, require_room
from tailtrain.worker.sharded.ending import Ending
from tailtrain.worker.sharded.fatal import FatalWord
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
        self._fatal: FatalWord | None = None
        self._ending = Ending(config, self._status, lambda: self._stopping)
        self._shown: tuple[object, ...] = ()
        self._heard: dict[str, float] = {}
        self._elsewhere = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def run(self) -> None:
        """Until finished, or stopped as asked.

        Raises:
            WorkerError: this node cannot take part; the status says failed, and why, if the disk takes it.
            LostNodeError: a node was lost, in a run that tolerates none.
        """
        if self._ending.is_over():
            log("the run is finished")
            return
        try:
            self._run()
        except WorkerError as error:
            with suppress(OSError):
                self._status.set("failed", str(error))
            raise
        except OSError as error:
            if not is_of_the_disk(error):
                raise
            raise disk_error(self._config.worker, error) from error

    def _run(self) -> None:
        hearing = None
        try:
            if self._ending.checkpoint():
                hearing = open_hearing(self._config)
                self._give_what_is_finished(hearing)
                return
            remove_halves(self._config.worker.run_dir / "checkpoints")
            self._fatal = FatalWord(self._config)
            self._status.set("starting", "looks for the other nodes")
            hearing = open_hearing(self._config)
            try:
                self._keep_going(hearing)
            except _OverError:
                self._ending.learn(hearing)
        finally:
            if self._agent is not None:
                self._agent.end()
            if hearing is not None:
                hearing.close()
            if self._fatal is not None:
                self._fatal.close()

    def _give_what_is_finished(self, hearing: Hearing) -> None:
        """This node has the run's end already: others may need that."""
        self._status.set("finished", "the run is finished")
        if self._config.worker.is_primary:
            self._ending.say_goodbye(hearing)
            return
        hearing.tell(None, finished=True)
        self._ending.stay(hearing, set())

    def _keep_going(self, hearing: Hearing) -> None:
        chooser = Chooser(hearing, self._config.rendezvous_order[0])
        while not self._stopping:
            host, words = chooser.choose()
            self._raise_if_over(words)
            if self._config.worker.is_primary:
                require_room(self._config)
            hearing.tell(host)
            if host is None:
                self._status.set("waiting", hearing.why())
                time.sleep(_LOOK_SECONDS)
                continue
            finished = self._one_rendezvous(hearing, host)
            if finished and self._ending.lacks():
                raise _OverError
            hearing.tell(None, finished=finished)
            if self._fatal is not None:
                self._fatal.raise_if_came()
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
            fatal = self._fatal is not None and self._fatal.came()
            if self._stopping or fatal or self._elsewhere or host in hearing.dead:
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
        """One node stays until all know that the run is finished, and all that the primary may need."""
        config, members = self._config, set(self._status.read().get("members", ()))
        first = next((node for node in config.rendezvous_order if node in members), None)
        away = {node.node for node in config.nodes} - members if first == config.worker.node else set()
        self._ending.stay(hearing, away)

    def _raise_if_over(self, words: Mapping[str, Word]) -> None:
        # A deploy brings the final model to nodes that were away too.
        if any(word.finished for word in words.values()) or self._ending.model_is_here():
            raise _OverError

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True


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
