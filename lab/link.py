"""The link of one place, the control side or a host, with what can be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab import filters, rates, slow
from lab.settings import CONTROL

if TYPE_CHECKING:
    from lab.settings import Settings


@dataclass(frozen=True)
class Link:
    """A place's link to the bridge.

    Attributes:
        settings: of the lab.
        place: a host, or CONTROL.
        index: of the place on the bridge; 0 is the control side.
    """

    settings: Settings
    place: str
    index: int

    def slow_down(self, seconds: float) -> None:
        """Delay everything by this long in each direction; 0: not at all."""
        if seconds:
            slow.slow_down(self.settings, self.index, seconds)
        else:
            slow.speed_up(self.settings, self.index)

    def narrow(self, mbit: float | None) -> None:
        """Let no more through than this in each direction, in Mbit/s; None: no limit."""
        if mbit is None:
            rates.unlimit(self.settings, self.place, self.index)
        else:
            rates.limit(self.settings, self.place, self.index, mbit)

    def restore(self) -> None:
        """Undo every fault."""
        if self.place != CONTROL:
            filters.restore(self.settings, self.place)
        self.slow_down(0)
        self.narrow(None)

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong now, in words: as the kernel and the running processes have it."""
        lost = filters.fault(self.settings, self.place)
        delay = slow.delay(self.settings, self.index)
        mbit = rates.rate(self.settings, self.place, self.index)
        return (
            *([lost] if lost else []),
            *([f"{delay * 1000:g} ms each way"] if delay else []),
            *([f"{mbit:g} Mbit/s"] if mbit else []),
        )
