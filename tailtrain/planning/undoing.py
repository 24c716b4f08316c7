"""What tailtrain has put on hosts, and the plan of undoing it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.observed import Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.planning.observed import LockHolder, UnitState
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
    `run` is the run that the worker is configured for. `left` are packages that a deploy may have installed,
    `masked` units of theirs that it masked, `lock` is who deploys from there.
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
    masked: tuple[str, ...] = ()
    lock: LockHolder | None = None

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
        """Whether a unit of ours trains or judges there, or would after the next boot; serving is no work."""
        serving = (layout.CHUNKS_UNIT, layout.SERF_UNIT)
        working = (unit for name, unit in self.units.items() if name not in serving)
        return any(unit.active not in ("inactive", "failed") or unit.enabled for unit in working)

    @property
    def unfinished(self) -> KeptRun | None:
        """The configured run, if it has not come to its end; under way where the host is `busy`."""
        mine = (run for run in self.runs if run.run_id == self.run and run.state not in ("", "finished"))
        return next(mine, None)


PROGRAMS = (layout.ENVIRONMENT_DIR, layout.CODE_DIR)
DATA = (layout.CHUNK_DIR, layout.MANIFEST_DIR, layout.WHEEL_DIR)


class Verdict(StrEnum):
    """What the plan of an undo means for a host."""

    UNDO = "undo"
    NOTHING = "nothing"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class UndoHost:
    """What an undo does to one host. `role` is as declared, or `departed`."""

    name: str
    role: str
    found: Belongings | Unreachable
    keep_runs: bool = False

    @property
    def belongings(self) -> Belongings:
        """What is there, as far as is known."""
        return Belongings(self.name) if isinstance(self.found, Unreachable) else self.found

    @property
    def obstacle(self) -> str:
        """Why it is unknown or refused, empty otherwise."""
        return self.found.reason if isinstance(self.found, Unreachable) else self.found.obstacle

    @property
    def verdict(self) -> Verdict:
        """What happens to it."""
        if isinstance(self.found, Unreachable):
            return Verdict.UNKNOWN
        if not self.steps:
            return Verdict.NOTHING
        return Verdict.REFUSED if self.found.obstacle else Verdict.UNDO

    @property
    def kept(self) -> bool:
        """Whether there are runs that are to stay."""
        return self.keep_runs and layout.RUN_DIR in self.belongings.places

    @property
    def frees(self) -> int:
        """The bytes that it frees."""
        return self.belongings.bytes - (self.bytes_of(layout.RUN_DIR) if self.kept else 0)

    def bytes_of(self, *folders: str) -> int:
        """The bytes in some of our folders together."""
        return sum(self.belongings.places.get(folder, 0) for folder in folders)

    @property
    def steps(self) -> tuple[str, ...]:
        """What is done there, in words and in order; nothing where nothing of ours is there."""
        found, steps = self.belongings, []
        if found.units:
            steps.append(f"stop, disable and remove {', '.join(found.units)}")
        if found.masked:
            steps.append(f"unmask {', '.join(found.masked)}, which does not start by itself then")
        inner = {place for place in found.places if any(place.startswith(f"{o}/") for o in found.places)}
        for place in found.places:
            if place in inner:
                continue
            if not (self.kept and layout.RUN_DIR.startswith(f"{place}/")):
                steps.append(f"remove {place}")
            elif found.places[place] > self.bytes_of(layout.RUN_DIR) or inner > {layout.RUN_DIR}:
                steps.append(f"remove all in {place} but the runs")
        if found.account and not self.kept:
            steps.append(f"remove the account {layout.ACCOUNT}")
        return tuple(steps)


@dataclass(frozen=True)
class EndingRun:
    """A run that has not come to its end, and hosts of it that are undone.

    `under_way` says that it is being trained at this moment; `ends` that its primary is among those hosts.
    """

    run_id: str
    round: int
    hosts: tuple[str, ...]
    under_way: bool
    ends: bool


@dataclass(frozen=True)
class LostModel:
    """A finished model that would be nowhere any more; `fetchable` by `tailtrain fetch`."""

    run_id: str
    bytes: int
    hosts: tuple[str, ...]
    fetchable: bool


@dataclass(frozen=True)
class UndoPlan:
    """What an undo does. `fetched` are the hashes of the models that the control machine has."""

    hosts: tuple[UndoHost, ...]
    fetched: frozenset[str] = frozenset()
    keep_runs: bool = False

    def of(self, verdict: Verdict) -> tuple[UndoHost, ...]:
        """The hosts with this verdict."""
        return tuple(host for host in self.hosts if host.verdict is verdict)

    @property
    def undone(self) -> tuple[UndoHost, ...]:
        """The hosts that something is done to."""
        return self.of(Verdict.UNDO)

    @property
    def ending(self) -> tuple[EndingRun, ...]:
        """Runs that lose hosts, or end."""
        found: dict[str, list[tuple[UndoHost, KeptRun]]] = {}
        for host in self.undone:
            if run := host.belongings.unfinished:
                found.setdefault(run.run_id, []).append((host, run))
        return tuple(
            EndingRun(
                run_id,
                max(run.round for _, run in entries),
                tuple(host.name for host, _ in entries),
                any(host.belongings.busy for host, _ in entries),
                any(host.role == "primary" for host, _ in entries),
            )
            for run_id, entries in found.items()
        )

    @property
    def lost_models(self) -> tuple[LostModel, ...]:
        """Models that nobody has fetched and no host keeps.

        Every node of a run has its model once it is validated. So where the primary stays, only a host that
        left the fleet can have one that nobody else has.
        """
        if self.keep_runs:
            return ()
        primary = next((host for host in self.undone if host.role == "primary"), None)
        found: dict[str, tuple[KeptRun, list[str]]] = {}
        for host in self.undone:
            for run in host.belongings.runs:
                if run.model_sha256 and run.model_bytes and run.model_sha256 not in self.fetched:
                    found.setdefault(run.run_id, (run, []))[1].append(host.name)
        departed = {host.name for host in self.undone if host.role == "departed"}
        return tuple(
            LostModel(
                run_id,
                run.model_bytes,
                tuple(names),
                primary is not None and run_id == primary.belongings.run,
            )
            for run_id, (run, names) in found.items()
            if primary or departed.intersection(names)
        )
