"""The parts that plans are made of: phases, actions, changed files, drift, moves, removals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_KB, _MB, _GB = 1e3, 1e6, 1e9

CONTROL_MACHINE = "the control machine"
"""How plans name it as a source of chunks."""


class Phase(StrEnum):
    """The phases in their order. The specification has four; `provision` prepares hosts, `clean` removes."""

    PROVISION = "provision"
    DISTRIBUTE = "distribute"
    TRAIN = "train"
    AGGREGATE = "aggregate"
    VALIDATE = "validate"
    CLEAN = "clean"


ACTION_ORDER = (
    *("mask", "packages", "account", "environment", "code", "identity", "credentials", "gossip", "files"),
    *("serve", "agent", "retire"),
    *(
        "upload",
        "chunks",
        "copies",
        "drain",
        "start",
        "restart",
        "watch",
        "aggregate",
        "model",
        "validate",
        "judge",
    ),
    *("prune", "clean", "receipt"),
)
"""The keys of all actions, in the order in which the deploys do them."""


@dataclass(frozen=True)
class Action:
    """One thing that will be done to a host. `key`, one of `ACTION_ORDER`, is what the deploys ask for."""

    phase: Phase
    key: str
    what: str
    why: str


@dataclass(frozen=True)
class Drift:
    """Something on a host that somebody else changed: what was applied, what is there, what is wanted."""

    subject: str
    receipt: str
    found: str
    wanted: str


@dataclass(frozen=True)
class Removal:
    """Something of ours that a host no longer needs: the files, the bytes that this frees, and the rule.

    `data` says that it is of a data set: every host must have verified what is its own before it goes.
    """

    what: str
    why: str
    paths: tuple[str, ...]
    bytes: int
    data: bool = False


@dataclass(frozen=True)
class ChunkMove:
    """Chunks that go to a host for the same reason; `detail` is how much of it there is on this host."""

    why: str
    chunks: int
    bytes: int
    detail: str = ""


@dataclass(frozen=True)
class ChunkSource:
    """Chunks that come to a host from the same place: the control machine, the backend, or a node."""

    source: str
    why: str
    chunks: int
    bytes: int


@dataclass(frozen=True)
class Preflight:
    """What stands out about a host before anything is done there.

    Disk in bytes, clock skew in seconds against the control machine, `key_expires` None where the key never
    does. `declared` and `found` are cores, GB of memory and GPUs, in words.
    """

    key_expires: str | None
    key_days: float | None
    disk_free_bytes: int
    disk_needed_bytes: int
    clock_skew_seconds: float
    declared: str
    found: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileChange:
    """A text file that will be written, with the text that is there now (None: no such file)."""

    path: str
    mode: str
    group: str
    before: str | None
    after: str

    @property
    def mode_and_owners(self) -> str:
        """As a probe reports them."""
        return f"{self.mode} root:{self.group}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular where it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def megabytes(size: float) -> str:
    """Bytes in words: kB below a thousand of them, then MB, then GB."""
    if size < _MB:
        return f"{size / _KB:,.1f} kB"
    return f"{size / _MB:,.1f} MB" if size < _GB else f"{size / _GB:,.1f} GB"
