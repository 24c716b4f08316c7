"""`train`: take part in a run until it is finished, or until told to stop."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from tailtrain.errors import WorkerError
from tailtrain.worker.files import cannot_write
from tailtrain.worker.joining import FinishedElsewhereError, has_final_model, primary_to_serve
from tailtrain.worker.node_state import NodeState
from tailtrain.worker.reading.supply import Supply
from tailtrain.worker.rounds import RoundLoop, Stopped
from tailtrain.worker.status import State, StatusFile, log

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.peers.swarm import Swarm


class _StopRequest:
    """Whether SIGTERM or SIGINT came."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        # hivemind's processes are forks: they must end when told to, not take a note.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))

    def __call__(self) -> bool:
        return self._asked

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True


class _Status(StatusFile):
    """What this worker says of itself, where the disk has room for it.

    A full disk must not end the training, nor hide why it ended: what cannot be written is said on standard
    error, once until it can be again.
    """

    def __init__(self, config: WorkerConfig) -> None:
        super().__init__(config)
        self._config = config
        self._told = False

    def set(self, state: State, message: str = "", **fields: Any) -> None:
        """Write the state and other fields.

        Raises:
            WorkerError: it is "finished" and cannot be written; a deploy waits for it.
        """
        try:
            super().set(state, message, **fields)
            self._told = False
        except OSError as error:
            problem = self._cannot(error)
            if state == "finished":
                raise problem from error

    def fetching(self, what: str) -> None:
        """Say which chunks are being fetched."""
        try:
            super().fetching(what)
        except OSError as error:
            self._cannot(error)

    def add_progress(self, line: dict[str, Any]) -> None:
        """Add a round to progress.jsonl."""
        try:
            super().add_progress(line)
        except OSError as error:
            self._cannot(error)

    def _cannot(self, error: OSError) -> WorkerError:
        problem = cannot_write(
            "the status cannot be written",
            host=self._config.node,
            folder=self._config.run_dir,
            error=error,
            fix="Make room on that disk",
        )
        if not self._told:
            log(str(problem))
        self._told = True
        return problem


def train(config: WorkerConfig) -> None:
    """Train this node's share until the fleet has reached the target.

    Raises:
        WorkerError: the configuration, the data or the address cannot be used, or a node was lost in a run
            that tolerates none. The status says failed, and why.
    """
    stopping = _StopRequest()
    status = _Status(config)
    status.set("starting", "loads the newest checkpoint")
    closing = ExitStack()
    try:
        _take_part(config, status, stopping, closing)
    except FinishedElsewhereError:
        status.set("finished", "the others finished the run; this node was not in the final average")
    except Stopped:
        status.set("stopped", "was told to stop; the run can be resumed")
    except WorkerError as error:
        status.set("failed", str(error))
        raise
    except Exception as error:
        status.set("failed", f"{type(error).__name__}: {error}")
        raise
    finally:
        closing.close()


def _take_part(
    config: WorkerConfig, status: StatusFile, stopping: Callable[[], bool], closing: ExitStack
) -> None:
    """Run the rounds; what is opened for them is closed with `closing`."""
    supply = Supply(config, status.fetching)
    closing.callback(supply.fetcher.close)
    state = NodeState(config, supply)
    state.roll_back()
    finished = state.commit.finished
    if finished or has_final_model(config):
        status.set("finished", "the run is finished", round=state.commit.round, **state.commit.to_status())
        if not (finished and primary_to_serve(config, {})):
            return
    swarm = presence = None
    if config.coordination.peers:
        from tailtrain.worker.peers.swarm import open_swarm  # noqa: PLC0415 - a node alone needs no hivemind

        swarm = open_swarm(config, state.commit.weights.numel(), supply.shards, state.shared)
        closing.callback(_close, swarm)
    if not finished:
        supply.fetcher.start()  # threads start after the swarm's processes were forked
    if config.gossips:
        from tailtrain.worker.presence import open_presence  # noqa: PLC0415 - nor msgpack without gossip

        presence = open_presence(config, state.commit.weights.numel())
        if presence is not None:
            closing.callback(presence.close)
    RoundLoop(config, state, status, swarm, presence, stopping).run()
    supply.fetcher.close()
    supply.fetcher.give_back()


def _close(swarm: Swarm) -> None:
    with suppress(Exception):  # its processes may have been ended by the service manager already
        swarm.close()
