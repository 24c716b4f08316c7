"""The agent as its supervisor sees it: it is told where the rendezvous is, and says when that ended."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from tailtrain.worker.status import log

if TYPE_CHECKING:
    from pathlib import Path

_STOP_SECONDS = 8.0


class AgentProcess:
    """One agent; it outlives a rendezvous, because to import torch again would cost seconds.

    Args:
        path: the configuration's file.
    """

    def __init__(self, path: Path) -> None:
        self._reading, writing = os.pipe()
        command = [sys.executable, "-m", "tailtrain.worker.sharded", "agent", "--config", str(path)]
        # torch's own words on a lost peer are stack traces; this package says it in one line.
        environment = {**os.environ, "TORCH_CPP_LOG_LEVEL": "FATAL"}
        self._process = subprocess.Popen(
            [*command, "--parent", str(os.getpid()), "--report", str(writing)],
            stdin=subprocess.PIPE,
            pass_fds=[writing],
            env=environment,
        )
        os.close(writing)

    def meet_at(self, host: str) -> None:
        """Have it meet the others at this node."""
        assert self._process.stdin is not None  # noqa: S101 - it was made so
        with suppress(BrokenPipeError):  # it has ended, which `running` says
            self._process.stdin.write(f"{host}\n".encode())
            self._process.stdin.flush()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    @property
    def finished(self) -> bool:
        """Whether it ended because the run is finished."""
        return self._process.poll() == 0

    def rendezvous_ended(self) -> bool:
        """Whether it said so since it was asked last."""
        ready, _, _ = select.select([self._reading], [], [], 0.0)
        return bool(ready) and bool(os.read(self._reading, 1))

    def end(self) -> None:
        """End it, which ends its rank; by force where it does not listen."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log("the agent did not end when told to; ended by force")
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Let go of what it was reached by; it must have ended."""
        os.close(self._reading)
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
