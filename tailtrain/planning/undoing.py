"""What tailtrain has put on hosts, and the plan of an undo: a pure value and its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.planning.observed import UnitState
    from tailtrain.planning.receipt import Receipt


@dataclass(frozen=True)
class KeptRun:
    """A run that a host keeps, in bytes; `model_sha256` is its final model's, empty where there is none."""

    run_id: str
    state: str
    round: int
    bytes: int
    model_bytes: int = 0
    model_sha256: str = ""


@dataclass(frozen=True)
class Belongings:
    """What of tailtrain's is on a host.

    `units` are those that have a file there; `places` maps each folder of ours that exists to the bytes in
    it (a folder inside another one counts in both). `unexpected` says why nothing must be removed there.
    `run` is the run that the worker is configured for. `left` are packages that a deploy may have installed.
    """

    node: str
    superuser: bool = True
    unexpected: tuple[str, ...] = ()
    units: Mapping[str, UnitState] = field(default_factory=dict)
    unit_bytes: int = 0
    places: Mapping[str, int] = field(default_factory=dict)
    account: bool = False
    run: str = ""
    runs: tuple[KeptRun, ...] = ()
    receipt: Receipt | None = None
    left: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether nothing of ours is there."""
        return not (self.units or self.places or self.account)

    @property
    def obstacle(self) -> str:
        """Why nothing must be, or can be, removed there; empty where nothing stands in the way."""
        if self.unexpected:
            return "; ".join(self.unexpected)
        return "" if self.superuser else "the login has no root rights there: it needs _sudo"

    @property
    def bytes(self) -> int:
        """What removing all of it frees."""
        return self.unit_bytes + sum(
            size
            for path, size in self.places.items()
            if not any(path.startswith(f"{o}/") for o in self.places)
        )

    @property
    def busy(self) -> bool:
        """Whether a unit of ours runs there, or would run after the next boot."""
        return any(unit.active not in ("inactive", "failed") or unit.enabled for unit in self.units.values())

    @property
    def unfinished(self) -> KeptRun | None:
        """The configured run, if it has not come to its end; under way where the host is `busy`."""
        mine = (run for run in self.runs if run.run_id == self.run and run.state not in ("", "finished"))
        return next(mine, None)
