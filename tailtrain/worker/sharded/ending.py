"""After the last step: who was away hears of it, and the primary gets the checkpoint of the end.

A finished run needs its checkpoint on the primary, where the final model is made. A primary that was away
then is not over until it has taken it from a node that has it; such a node stays, and stays again at each
start, until the primary says that it is over, or a deploy has brought the final model here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tailtrain.errors import CheckpointError
from tailtrain.worker.sharded.checkpoints import finished_checkpoint
from tailtrain.worker.sharded.disk import disk_error, is_of_the_disk
from tailtrain.worker.sharded.handover import Giver, take
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.sharded.hearing import Hearing
    from tailtrain.worker.sharded.status import ShardedStatus

_LOOK_SECONDS = 1.0
_GOODBYE_SECONDS = 5.0  # for whoever waits for this node to hear it


class Ending:
    """What a node does when the run is finished.

    Args:
        config: this node's configuration.
        status: of this node.
        stopping: whether the node was told to stop.
    """

    def __init__(self, config: ShardedConfig, status: ShardedStatus, stopping: Callable[[], bool]) -> None:
        self._config, self._status, self._stopping = config, status, stopping
        self._primary = config.worker.primary

    def checkpoint(self) -> Path | None:
        """Where the finished checkpoint is on this node."""
        worker = self._config.worker
        return finished_checkpoint(worker.run_dir / "checkpoints", worker.run_id)

    def model_is_here(self) -> bool:
        """Whether the final model is: a deploy brings it to all nodes when the primary has made it."""
        return (self._config.worker.run_dir / "final" / "manifest.json").is_file()

    def is_over(self) -> bool:
        """Whether the run is finished here, and no other node needs this one."""
        said = self._status.read()
        if said.get("state") != "finished":
            return False
        if self._config.worker.is_primary:
            return not self.lacks()
        return bool(said.get("primary_has_final")) or self.model_is_here() or self.checkpoint() is None

    def lacks(self) -> bool:
        """Whether this is the primary, and what the final model is made of is not here."""
        return self._config.worker.is_primary and not self.model_is_here() and self.checkpoint() is None

    def stay(self, hearing: Hearing, away: set[str]) -> None:
        """Until those away have heard of the end and the primary has its checkpoint, or told to stop.

        Args:
            hearing: of the others.
            away: whom this node is to wait for, beside the primary.
        """
        giver = self._giver()
        try:
            while (away or giver) and not self._stopping():
                heard = {node for node, word in hearing.hear().items() if word.finished}
                away -= heard
                if giver and (self._primary in heard or self.model_is_here()):
                    giver.close()
                    giver = None
                    self._status.set("finished", "the run is finished", primary_has_final=True)
                time.sleep(_LOOK_SECONDS)
        finally:
            if giver:
                giver.close()

    def _giver(self) -> Giver | None:
        """One that gives, where the primary may lack the checkpoint and it is here."""
        said = self._status.read()
        known = self._config.worker.is_primary or said.get("primary_has_final") or self.model_is_here()
        checkpoint = None if known else self.checkpoint()
        if checkpoint is None:
            return None
        self._status.set(
            "finished", f"the run is finished; keeps its end for {self._primary}, which was away"
        )
        return Giver(self._config, checkpoint)

    def learn(self, hearing: Hearing) -> None:
        """The others are finished: take what is missing here, be finished, and let them hear it.

        Raises:
            WorkerError: the disk has no room for the checkpoint.
        """
        message = "the others finished the run; this node was not there at its end"
        if self.lacks():
            giver = self._take(hearing)
            if giver is None:
                self._status.set("stopped", "was told to stop; the run can be resumed")
                return
            message = f"{message}, and has its last checkpoint from {giver}"
        self._status.set("finished", message)
        self.say_goodbye(hearing)

    def say_goodbye(self, hearing: Hearing) -> None:
        """Let whoever waits for this node hear that it is finished."""
        hearing.tell(None, finished=True)
        time.sleep(_GOODBYE_SECONDS)

    def _take(self, hearing: Hearing) -> str | None:
        """Who gave the finished checkpoint; None where the node was told to stop before."""
        while not self._stopping():
            nodes = sorted(node for node, word in hearing.hear().items() if word.finished)
            for node in nodes:
                try:
                    take(self._config, node)
                except OSError as error:
                    # One that finished and has no checkpoint refuses; another may have it.
                    if is_of_the_disk(error):
                        raise disk_error(self._config.worker, error) from error
                except CheckpointError as error:
                    log(str(error))
                else:
                    return node
            there = ", ".join(nodes) or "no finished node"
            self._status.set(
                "waiting",
                f"the run is finished; its last checkpoint is not here, and {there} gives none: start those "
                "that wrote it",
            )
            time.sleep(_LOOK_SECONDS)
        return None
