"""What a lab remembers between commands: its hosts, their processes and what they were made from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lab.inventory import HostSpec  # noqa: TC001 - msgspec reads the types when it decodes
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from lab.settings import Settings

_FORMAT = 1
_START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the command in parentheses


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one with the same id by when it was started."""

    pid: int
    started: int
    """In clock ticks since the machine was booted."""

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this id now; raises FileNotFoundError when there is none."""
        return cls(pid, _start_time(pid))

    @property
    def alive(self) -> bool:
        """Whether it still runs (and is no zombie)."""
        try:
            return _start_time(self.pid) == self.started
        except OSError:
            return False


def _start_time(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        raise ProcessLookupError(pid)
    return int(fields[_START_TIME_FIELD])


@dataclass(frozen=True)
class HostState:
    """One booted host."""

    spec: HostSpec
    index: int
    """Its place on the bridge, kept for as long as the host is in the lab."""
    layers: tuple[str, ...]
    """The read-only layers that it was made from, topmost first."""
    bare: bool
    cpu_quota_cores: float
    memory_bytes: int
    init: Process | None = None
    """Its process 1, as the machine sees it."""
    address: str | None = None
    """Its address in the tailnet, once it has joined."""


@dataclass(frozen=True)
class LabState:
    """One lab."""

    format: int = _FORMAT
    inventory: str = ""
    binaries: str = ""
    wheels: str = ""
    environment: str = ""
    """The worker environment's directory on the hosts that are not bare."""
    hosts: dict[str, HostState] = field(default_factory=dict)
    server: Process | None = None
    control: Process | None = None
    control_address: str | None = None

    def with_host(self, host: HostState) -> LabState:
        """This state with one host added or replaced."""
        return replace(self, hosts={**self.hosts, host.spec.name: host})

    def without_host(self, name: str) -> LabState:
        """This state without one host."""
        return replace(self, hosts={key: host for key, host in self.hosts.items() if key != name})


def load(settings: Settings) -> LabState | None:
    """The state as it was last written, None when the lab is down.

    Raises:
        LabError: the file cannot be read as one of this version.
    """
    path = _file(settings)
    try:
        state = msgspec.json.decode(path.read_bytes(), type=LabState)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise LabError("only root may look at the lab", fix="Type it again after: sudo -E") from error
    except msgspec.DecodeError as error:
        raise LabError(
            f"the lab's state file is damaged: {error}", field=str(path), fix="Type: python -m lab down"
        ) from error
    if state.format != _FORMAT:
        raise LabError(
            "the lab was made by another version of tailtrain",
            field=str(path),
            found=state.format,
            expected=_FORMAT,
            fix="Type: python -m lab down",
        )
    return state


def save(settings: Settings, state: LabState) -> None:
    """Write the state; a reader sees the old one or the new one."""
    path = _file(settings)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    temporary.replace(path)


def _file(settings: Settings) -> Path:
    return settings.state / "state.json"


def inside(settings: Settings) -> bool:
    """Whether this very process runs inside the lab, started by `lab exec`."""
    lines = Path(f"/proc/{os.getpid()}/cgroup").read_text().splitlines()
    return any(f"/{settings.cgroup}/" in f"{line}/" for line in lines)
