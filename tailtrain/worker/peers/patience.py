"""How long a peer may be silent in an averaging before it is given up."""

from __future__ import annotations

_TIMES = 8.0
_LEAST_SECONDS = 2.0  # a busy host's processes may stand still for a second
_FORGET = 0.7


class Patience:
    """Learns from averagings how long peers are silent between two parts, and allows eight times that.

    After one that failed it allows twice as much, so that slow peers are not given up again and again.

    Args:
        most: seconds to allow at most, and as long as nothing has been learnt.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._usual: float | None = None

    @property
    def seconds(self) -> float:
        """What is allowed now."""
        if self._usual is None:
            return self._most
        return min(self._most, max(_LEAST_SECONDS, _TIMES * self._usual))

    def succeeded(self, silence: float) -> None:
        """An averaging in which nobody was silent for longer than this many seconds."""
        self._usual = max(silence, _FORGET * (self._usual or 0.0))

    def failed(self) -> None:
        """An averaging that somebody's silence may have ended."""
        if self._usual is not None:
            self._usual = 2.0 * max(self._usual, _LEAST_SECONDS / _TIMES)
