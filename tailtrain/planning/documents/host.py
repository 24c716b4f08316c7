"""The parts of a plan's document that speak of one host."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tailtrain.planning.documents.topology import Work

Count = Annotated[int, Meta(ge=0)]


class Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody is deploying."""

    token: Annotated[
        str, Meta(description="Breaks the lock, where its holder is gone: tailtrain unlock TOKEN.")
    ]
    who: str
    since: str
    plan: Annotated[str, Meta(description="The id of the plan that they carry out.")]


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host's hardware as declared."""

    cores: Count
    ram_gb: Count
    gpu: bool
    storage_gb: Count


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the worker may use of a host."""

    threads: Count
    usable_cores: float
    memory_bytes: Count
    device: str
    nice: int


class PreflightEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands out about a host before anything is done there."""

    key_expires: Annotated[str | None, Meta(description="When its tailnet key does; null: never.")]
    key_days: float | None
    disk_free_bytes: Count
    disk_needed_bytes: Count
    clock_skew_seconds: Annotated[float, Meta(description="Against the control machine.")]
    declared: Annotated[str, Meta(description="Declared hardware, in words.")]
    found: Annotated[str, Meta(description="Found hardware, in words.")]
    warnings: tuple[str, ...]


class DriftEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that somebody else changed: what the receipt says, what is there, what is wanted."""

    subject: str
    receipt: str
    found: str
    wanted: str


class MoveEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chunks that come to the host for the same reason."""

    why: str
    detail: Annotated[str, Meta(description="How much of it there is on this host; may be empty.")]
    chunks: Count
    bytes: Count


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chunks that come to the host from the same place, for the same reason."""

    source: Annotated[str, Meta(description="The control machine, the backend's remote, or a node.")]
    why: str
    chunks: Count
    bytes: Count


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that will be written. `before` values are null where there is none."""

    path: str
    mode: str
    group: str
    binary: Annotated[bool, Meta(description="Not text: known by its size and hash only, no diff.")]
    before_sha256: str | None
    before_bytes: Count | None
    after_sha256: str
    after_bytes: Count


class ActionEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that will be done to the host."""

    phase: str
    key: Annotated[str, Meta(description="The kind of action, a word that stays the same.")]
    what: str
    why: str


class RemovalEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something of ours that the host no longer needs."""

    what: str
    why: str
    paths: tuple[str, ...]
    bytes: Count


class Applied(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last deploy that changed this host, by its receipt."""

    plan: str
    run: str
    by: str
    at: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host that did not answer: nothing about it is known, which is not the same as no change."""

    reason: str
    if_it_answers: str
    if_it_stays_away: str


class HostEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about one host of the inventory."""

    name: str
    role: str
    verdict: Annotated[str, Meta(description="What the plan means for the host, in few words.")]
    unknown: Unknown | None
    declared: Hardware
    share: Annotated[Count, Meta(description="Of the fleet's work, in 65536ths.")]
    quotas: Annotated[dict[str, Count], Meta(description="Records to train on, by domain.")]
    work: Annotated[
        Work | None, Meta(description="Its part in the training; null where the model is divided.")
    ] = None
    path: Annotated[str, Meta(description="How it is reached: direct, or relayed.")]
    emulated: Annotated[bool, Meta(description="A lab host: it emulates the declared hardware.")]
    environment: Annotated[str, Meta(description="The lock that its packages come from.")]
    config_sha256: Annotated[str, Meta(description="Of its worker's configuration.")]
    limits: Limits | None
    notes: tuple[str, ...]
    preflight: PreflightEntry | None
    drift: tuple[DriftEntry, ...]
    actions: Annotated[tuple[ActionEntry, ...], Meta(description="In the order in which they are done.")]
    files: tuple[FileEntry, ...]
    chunks: Annotated[tuple[str, ...], Meta(description="SHA-256 of each chunk that comes to it.")]
    manifests: Annotated[tuple[str, ...], Meta(description="Data sets of which it lacks the list of chunks.")]
    moves: tuple[MoveEntry, ...]
    sources: Annotated[
        tuple[SourceEntry, ...],
        Meta(description="Where its chunks come from first; the next source is tried where that fails."),
    ]
    seconds_to_send: Annotated[
        float, Meta(description="Expected; 0 where nothing is sent or no speed is known.")
    ]
    send_rate: Annotated[str, Meta(description="The speed that this follows from, and where it is from.")]
    interrupts: Annotated[str, Meta(description="What a restart interrupts; empty where nothing.")]
    removals: tuple[RemovalEntry, ...]
    applied: Applied | None


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a host that left is logged in to."""

    ssh_user: str | None
    sudo: bool


class DepartedEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host that left the inventory and still has something of this fleet's."""

    name: str
    login: Login
    gone: Annotated[bool, Meta(description="The tailnet does not know it any more.")]
    unreachable: Annotated[str | None, Meta(description="Why it did not answer; null where it did.")]
    run: Annotated[str, Meta(description="The run it took part in.")]
    frees: Annotated[Count, Meta(description="Bytes.")]
    actions: tuple[ActionEntry, ...]
