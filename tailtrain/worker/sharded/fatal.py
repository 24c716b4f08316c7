"""A rank's last word to its supervisor: this node cannot go on, so its rank must not be started again.

It goes through a FIFO, which takes no room on the disk: that the disk is full is one of the reasons for it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.errors import LostNodeError, WorkerError
from tailtrain.worker.files import canonical_json

if TYPE_CHECKING:
    from tailtrain.worker.sharded.config import ShardedConfig

_FIFO = "fatal.fifo"
_MOST_BYTES = 4096  # a pipe takes these as one
_MOST_CHARACTERS = 600  # of six bytes at most in JSON


class FatalWord:
    """The supervisor's end; the FIFO is there until it is closed.

    Args:
        config: this node's configuration.

    Raises:
        OSError: the FIFO cannot be made.
    """

    def __init__(self, config: ShardedConfig) -> None:
        self._path = config.worker.run_dir / _FIFO
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        self._content = b""

    def came(self) -> bool:
        """Whether a rank has left one."""
        with suppress(BlockingIOError):
            self._content = self._content or os.read(self._descriptor, _MOST_BYTES)
        return bool(self._content)

    def raise_if_came(self) -> None:
        """As the error that the rank ended with.

        Raises:
            WorkerError: this node cannot take part.
            LostNodeError: a node was lost, in a run that tolerates none.
        """
        if self.came():
            raw = json.loads(self._content)
            kind = LostNodeError if raw["lost_node"] else WorkerError
            raise kind(raw["problem"])

    def close(self) -> None:
        """Remove the FIFO."""
        os.close(self._descriptor)
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def leave_fatal(config: ShardedConfig, error: Exception) -> None:
    """The rank's end; a supervisor that is gone needs no word."""
    content = {"problem": str(error)[:_MOST_CHARACTERS], "lost_node": isinstance(error, LostNodeError)}
    with suppress(OSError):
        descriptor = os.open(config.worker.run_dir / _FIFO, os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, canonical_json(content))
        os.close(descriptor)
