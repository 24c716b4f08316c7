"""One try at an averaging."""

from __future__ import annotations

from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailtrain.errors import PeerError
from tailtrain.worker.exchange import Averaged
from tailtrain.worker.peers.all_reduce import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.worker.peers.averager import Averager

_REASON_DIGITS = 200


class Attempt:
    """A try that is running in the background.

    Args:
        averager: where the mean will be.
        control: hivemind's handle on it.
        refuse: told of nodes that are to be left out of the next try.
    """

    def __init__(self, averager: Averager, control: Any, refuse: Callable[[frozenset[str]], None]) -> None:
        self._averager, self._control, self._refuse = averager, control, refuse

    def wait(self, seconds: float) -> Averaged | None:
        """The outcome, or None if it is not there after `seconds`.

        Raises:
            PeerError: no group was found in time, a peer failed, or what came is not acceptable; whoever sent
                that is named, and left out of the next try.
        """
        try:
            outcome = self._control.result(timeout=seconds)
        except FutureTimeoutError:
            if self._control.done():  # the averaging itself timed out
                raise PeerError("the averaging took too long") from None
            if not self._averager.is_alive():
                raise PeerError("hivemind's averaging process has ended") from None
            return None
        except CancelledError:
            raise PeerError("the averaging was cancelled") from None
        except RefusedError as error:
            self._refuse(error.nodes)
            raise PeerError(f"an averaging was refused: {error}") from error
        except Exception as error:  # hivemind raises many classes; none of them ends this node
            if "could not find a group" in str(error):
                raise PeerError("no group came together in time") from error
            raise PeerError("a peer failed while averaging", found=str(error)[:_REASON_DIGITS]) from error
        with self._averager.get_tensors() as (vector,):
            return Averaged(vector.clone(), outcome.group, outcome.moved_bytes)

    def cancel(self) -> None:
        """Give up, so that others do not wait for this node."""
        with suppress(Exception):  # it may have ended meanwhile, in any way
            self._control.cancel()
