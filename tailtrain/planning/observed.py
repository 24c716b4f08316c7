"""What one probe of a host answers, as values that planning can work with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailtrain.planning.receipt import Receipt


@dataclass(frozen=True)
class Hardware:
    """What a host really has. Memory and disk in bytes, clock skew in seconds against the control machine."""

    architecture: str
    system: str
    python: str | None
    systemd: bool
    cores: int
    usable_cores: float
    memory_bytes: int
    gpus: tuple[str, ...]
    disk_free_bytes: int
    clock_skew_seconds: float


@dataclass(frozen=True)
class UnitState:
    """A systemd unit as `systemctl show` reports it.

    `since` is when it last changed its state, in UTC; `drop_ins` are files that change what its own says.
    `masked` says that it can never run, `applied` is the digest that its running process bears, if any.
    """

    active: str = "inactive"
    enabled: bool = False
    pid: int = 0
    since: str = ""
    drop_ins: Sequence[str] = ()
    masked: bool = False
    applied: str = ""


@dataclass(frozen=True)
class RunState:
    """How far the newest run on a host is; empty values where there is none.

    `trained` is how much of the run's tokens the fleet has, from 0 to 1; `learned` is False where the model
    that was validated is no better than a baseline.
    """

    run_id: str = ""
    state: str = ""
    round: int = -1
    config_sha256: str = ""
    final_sha256: str = ""
    validated_sha256: str = ""
    learned: bool = True
    trained: float | None = None


@dataclass(frozen=True)
class StoredRun:
    """A run that a host keeps: its state, the bytes it takes, and when it last changed (Unix time)."""

    run_id: str
    state: str
    bytes: int
    modified_unix: float


@dataclass(frozen=True)
class StoredFolder:
    """An environment or a code on a host: the folder it is in, its name there, the bytes it takes."""

    parent: str
    name: str
    bytes: int


@dataclass(frozen=True)
class TailnetState:
    """What the tailnet says of a host: when its key expires (None: never), and what may go wrong."""

    key_expires: str | None = None
    key_days: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LockHolder:
    """Who is deploying: the token is what breaks the lock, `plan` what they carry out."""

    token: str
    who: str
    since: str
    plan: str


@dataclass(frozen=True)
class Measured:
    """What a host's worker measured of itself in a run, smoothed; 0 where there was nothing to measure.

    Attributes:
        run: in which run.
        parameters: of the model that it trained.
        tokens_per_second: while training alone.
        bytes_per_second: what an averaging moved in each direction.
        averaging_seconds: of an averaging of all.
        round_seconds: of a whole round.
    """

    run: str
    parameters: int
    tokens_per_second: float
    bytes_per_second: float
    averaging_seconds: float
    round_seconds: float


@dataclass(frozen=True)
class Observation:
    """A host that answered.

    `files` maps the path of each small text file that tailtrain writes to its content, or None where it is
    missing; `modified` to when it was last written, in UTC, `modes` to permissions and owners ("0640 a:b").
    `chunks` are the chunk and held-out files whose hash is right; `damaged` those whose is not, and what is
    wrong with each; `stray_chunks` the files in the chunk folder that the declared data sets do not have,
    with their bytes. `account` is whether the account and its folders are right, `account_trouble` why they
    are not. `codes` and `environments` are whole and unchanged; `stored` has all, the newest first.
    `receipt` is what the last deploy left there. `lock` and `deploys` (a number that every deploy raises) are
    of deploys with this host as primary. `credentials` is the hash, the mode and the owners of the storage
    backend's credentials, empty where there are none; `secrets` has the same of other such files, by path.
    """

    node: str
    address: str
    path: str
    emulated: bool
    superuser: bool
    hardware: Hardware
    missing_packages: tuple[str, ...] = ()
    account: bool = False
    account_trouble: str = ""
    environments: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()
    peer_id: str | None = None
    files: Mapping[str, str | None] = field(default_factory=dict)
    chunks: frozenset[str] = frozenset()
    damaged: Mapping[str, str] = field(default_factory=dict)
    manifests: frozenset[str] = frozenset()
    units: Mapping[str, UnitState] = field(default_factory=dict)
    run: RunState = field(default_factory=RunState)
    modified: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    stray_chunks: Mapping[str, int] = field(default_factory=dict)
    stored: tuple[StoredFolder, ...] = ()
    runs: tuple[StoredRun, ...] = ()
    receipt: Receipt | None = None
    tailnet: TailnetState = field(default_factory=TailnetState)
    lock: LockHolder | None = None
    deploys: int = 0
    credentials: str = ""
    measured: Measured | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Unreachable:
    """A declared host that did not answer, and why."""

    node: str
    reason: str


Observed = Mapping[str, Observation | Unreachable]
