"""Every error that tailtrain raises on purpose.

    TailtrainError
    ├── DeclarationError        inventory.py, group_data or a specification file is wrong
    │   ├── InvalidDeclarationError  all that is wrong with one declaration, told at once
    │   └── UnsupportedError    well formed, but this version or this fleet cannot do it
    ├── TailnetError            the local daemon or the path to a host
    │   ├── DaemonError         tailscaled is not there, not running or needs login
    │   ├── UnknownHostError    no peer of that name, or more than one
    │   ├── HostKeyError        the host's key is missing or not the one the tailnet names
    │   └── AccessError         the tailnet policy or the host refused the login
    ├── DataError               a data set, a chunk or a manifest
    │   └── StorageError        a storage backend: S3 or Google Drive
    ├── FleetError              hosts: probing, applying, waiting
    │   ├── TransferError       bytes did not arrive as they were sent
    │   ├── GateError           a phase did not end well enough for the next one
    │   └── LockedError         somebody else is deploying
    ├── WorkerError             training on a node
    │   ├── CheckpointError     a checkpoint is damaged or belongs to another run
    │   ├── PeerError           a message or state from another node is not acceptable
    │   └── LostNodeError       a node is gone, in a run that tolerates no loss
    └── LabError                the lab's hosts, network or tools

A message names the host, the field or file, what was found, what was expected and what to do, as far as
each is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class TailtrainError(Exception):
    """What went wrong, where, and what to do about it.

    Args:
        problem: one sentence in plain words, without a full stop.
        host: the node or host concerned.
        field: the setting, column or file concerned.
        found: what is there.
        expected: what should be there.
        fix: what to do, as an instruction, best with the command to type.
    """

    def __init__(
        self,
        problem: str,
        *,
        host: str | None = None,
        field: str | None = None,
        found: object = None,
        expected: object = None,
        fix: str | None = None,
    ) -> None:
        self.problem = problem
        self.host = host
        self.field = field
        self.found = found
        self.expected = expected
        self.fix = fix
        super().__init__(str(self))

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.host, self.field) if part)
        details = [
            f"{label} {value}"
            for label, value in (("found", self.found), ("expected", self.expected))
            if value is not None
        ]
        text = f"{where}: {self.problem}" if where else self.problem
        if details:
            text += f" ({', '.join(details)})"
        return f"{text}. {self.fix}" if self.fix else text


class DeclarationError(TailtrainError):
    """The inventory, the group data or a specification file is wrong."""


class InvalidDeclarationError(DeclarationError):
    """One or more things that are wrong with a declared fleet or training.

    The message has one line per problem; what several hosts have in common is one problem, with all their
    names. Host, field, found and expected are those of the first problem.

    Attributes:
        problems: each problem as an error of its own, in the order of the declaration.
    """

    def __init__(self, problems: Sequence[TailtrainError]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(
            first.problem,
            host=first.host,
            field=first.field,
            found=first.found,
            expected=first.expected,
            fix=first.fix,
        )

    def __str__(self) -> str:
        hosts: dict[str, list[str]] = {}
        for problem in self.problems:
            about = str(problem).removeprefix(f"{problem.host}: ")
            hosts.setdefault(about, []).extend([problem.host] if problem.host else [])
        lines = [
            f"{', '.join(dict.fromkeys(names))}: {about}" if names else about
            for about, names in hosts.items()
        ]
        if len(lines) == 1:
            return lines[0]
        return "\n".join([f"{len(lines)} problems", *(f"- {line}" for line in lines)])


class UnsupportedError(DeclarationError):
    """Well formed, but this version or this fleet cannot do it."""


class TailnetError(TailtrainError):
    """The local Tailscale daemon, or the path to a host."""


class DaemonError(TailnetError):
    """The local tailscaled is not there, not running or needs login."""


class UnknownHostError(TailnetError):
    """No peer of that name in the netmap, or more than one."""


class HostKeyError(TailnetError):
    """The host's key is missing or is not the one that the tailnet names."""


class AccessError(TailnetError):
    """The tailnet policy or the host refused the login."""


class DataError(TailtrainError):
    """A data set, a chunk or a manifest."""


class StorageError(DataError):
    """A storage backend (S3 or Google Drive), or the way to it."""


class FleetError(TailtrainError):
    """Probing, applying to or waiting for hosts."""


class TransferError(FleetError):
    """Bytes did not arrive as they were sent."""


class GateError(FleetError):
    """A phase did not end well enough for the next one to start."""


class LockedError(FleetError):
    """Somebody else is deploying to this fleet."""


class WorkerError(TailtrainError):
    """Training on a node."""


class CheckpointError(WorkerError):
    """A checkpoint is damaged or belongs to another run."""


class PeerError(WorkerError):
    """A message or a state from another node is not acceptable."""


class LostNodeError(WorkerError):
    """A node is gone, in a run that tolerates no loss."""


class LabError(TailtrainError):
    """The lab's hosts, network or tools."""
