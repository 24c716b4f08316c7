"""Phase 1 on hosts: the backend is filled, chunks are sent or fetched, and it is counted from where."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
from gevent.lock import RLock
from pyinfra.api import operation

from tailtrain.data.send import SentFile
from tailtrain.errors import TransferError
from tailtrain.fleet import folders, remote, session, transfer
from tailtrain.fleet.operations import Commands, where_planned
from tailtrain.fleet.storage import places
from tailtrain.planning import layout
from tailtrain.planning.observed import Observation
from tailtrain.planning.parts import CONTROL_MACHINE, counted, megabytes
from tailtrain.planning.sourcing import CONTROL, REMOTE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyinfra.api.host import Host

    from tailtrain.fleet.session import Session
    from tailtrain.planning.datasets import PlannedChunk
    from tailtrain.planning.sourcing import Delivery

LEAST_MEASURED = 1_000_000
"""Bytes; a smaller transfer says nothing about the speed of a link."""

AT_ONCE = 4
"""Chunks that a host fetches at the same time."""

# What a backend as a whole says no to; a chunk that is damaged or missing there is mended instead.
_WHOLE_BACKEND = ("unreachable", "refused", "limit")
_MENDABLE = ("damaged", "absent")
_mending = RLock()


@operation()
def upload() -> Commands:
    """Fill the storage backend with what it lacks, from this machine, once."""
    yield from where_planned("upload", _upload)


def _upload(host: Host) -> None:  # noqa: ARG001 - the primary stands for the fleet: it is this machine's work
    now = session.current()
    storage = now.require_storage()
    storage.fill(now.plan.datasets, now.plan.storage_uploads, now.chunk_dir)


@operation()
def chunks() -> Commands:
    """The node's chunks, held-out records and manifests, each checked on the node before it is visible."""
    yield from where_planned("chunks", _first_wave)


def _first_wave(host: Host) -> None:
    now = session.current()
    plan = now.plan.host(host.name)
    answer = now.observed[host.name]
    damaged = answer.damaged if isinstance(answer, Observation) else {}
    # One that is right but that the worker may not read would otherwise count as there already.
    amiss = [chunk.sha256 for chunk in plan.chunks if chunk.sha256 in damaged]
    folders.remove(host, [f"{layout.CHUNK_DIR}/{sha256}" for sha256 in amiss])
    first = [delivery for delivery in plan.deliveries if delivery.wave == 1]
    _send(host, [delivery.chunk for delivery in first if delivery.sent])
    _fetch(host, [delivery for delivery in first if not delivery.sent])
    manifests = [now.manifest_path(manifest) for manifest in plan.manifests]
    transfer.send_paths(host, layout.MANIFEST_DIR, [(transfer.described(path), path) for path in manifests])


@operation()
def copies() -> Commands:
    """Chunks that come from nodes which got them just now."""
    yield from where_planned("copies", _second_wave)


def _second_wave(host: Host) -> None:
    _fetch(host, [each for each in session.current().plan.host(host.name).deliveries if each.wave > 1])


def _send(host: Host, wanted: Sequence[PlannedChunk]) -> None:
    """Send chunks from this machine."""
    now = session.current()
    if not wanted:
        return
    files = [
        (SentFile(chunk.sha256, chunk.sha256, chunk.bytes), now.chunk_dir / chunk.sha256) for chunk in wanted
    ]
    sent = transfer.send_paths(host, layout.CHUNK_DIR, files)
    if sent.bytes >= LEAST_MEASURED and sent.seconds:
        now.rates[host.name] = sent.bytes / sent.seconds
    _tell(host, [(CONTROL_MACHINE, sent.received, sent.bytes)])


def _fetch(host: Host, wanted: Sequence[Delivery]) -> None:
    """Have a host fetch chunks, each from the first of its sources that gives it; send what none gave.

    Raises:
        TransferError: the backend as a whole refuses, or the host cannot store chunks.
    """
    if not wanted:
        return
    now = session.current()
    command = now.python_command(host.name, "tailtrain.data.pull")
    request = json.dumps(_request(now, host, wanted)) + "\n"
    output = remote.run(host, command, stdin=request, timeout=None)
    try:
        answer = json.loads(output.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise TransferError(
            "fetching chunks ended without an answer", host=host.name, found=output.complaint
        ) from None
    if answer["error"]:
        raise TransferError("chunks cannot be stored", host=host.name, found=answer["error"])
    _say(now, host, answer)
    failed = {each["sha256"] for each in answer["failed"]}
    damaged = _damaged_there(answer)
    for each in answer["failed"]:
        if each["source"] == REMOTE and each["kind"] in _WHOLE_BACKEND:
            raise TransferError(
                f"{now.require_storage().planned.path} does not give its chunks",
                host=host.name,
                found=each["why"],
                fix="Once the cause is gone, run the same command again: what has arrived stays",
            )
    if damaged:
        with _mending:
            fresh = damaged - now.mended
            mended = now.require_storage().mend(now.plan.datasets, fresh, now.chunk_dir) if fresh else 0
            now.mended |= damaged
        if mended:
            click.echo(f"    {counted(mended, 'pack')} uploaded again, damaged there", err=True)
    _send(host, [delivery.chunk for delivery in wanted if delivery.chunk.sha256 in failed])


def _damaged_there(answer: dict[str, Any]) -> frozenset[str]:
    """The chunks that the backend has lost, or has otherwise than they are."""
    there = [each for each in answer["failed"] if each["source"] == REMOTE and each["kind"] in _MENDABLE]
    passed = [
        each for each in answer["passed_over"] if each["source"] == REMOTE and each["kind"] in _MENDABLE
    ]
    return frozenset(each["sha256"] for each in there) | {name for each in passed for name in each["sha256"]}


def _request(now: Session, host: Host, wanted: Sequence[Delivery]) -> dict[str, Any]:
    """What `tailtrain.data.pull` is asked."""
    settings, planned = now.declared.settings, now.plan.storage
    where = places(now.plan.datasets) if planned else {}
    sources = {source for delivery in wanted for source in delivery.sources} - {CONTROL, REMOTE}
    addresses = {
        name: answer.address
        for name, answer in now.observed.items()
        if name in sources and isinstance(answer, Observation)
    }
    return {
        "folder": layout.CHUNK_DIR,
        "mode": "0640",
        "reserve_bytes": transfer.RESERVE_BYTES,
        "rclone": layout.rclone(now.bundle.material.locks[now.plan.host(host.name).lock]),
        "remote": {"path": planned.path, "config": layout.STORAGE_CONFIG, "flags": list(planned.flags)}
        if planned
        else None,
        "neighbours": {
            name: f"http://{address}:{settings.chunk_port}" for name, address in addresses.items()
        },
        "parallel": AT_ONCE,
        "chunks": [
            {
                "sha256": delivery.chunk.sha256,
                "size": delivery.chunk.bytes,
                "from": [source for source in delivery.sources if source != CONTROL],
                "pack": where.get(delivery.chunk.sha256),
            }
            for delivery in wanted
        ],
    }


def _tell(host: Host, given: Sequence[tuple[str, int, int]]) -> None:
    """Say how many chunks, of how many bytes, came to a host from each source."""
    parts = [
        f"{counted(chunks, 'chunk')} ({megabytes(size)}) from {name}"
        for name, chunks, size in given
        if chunks
    ]
    if parts:
        click.echo(f"    {host.name}: {', '.join(parts)}", err=True)


def _say(now: Session, host: Host, answer: dict[str, Any]) -> None:
    """Where the chunks came from, and what came from elsewhere than planned, or not at all."""
    backend = now.plan.storage.path if now.plan.storage else REMOTE
    names = {REMOTE: backend}
    _tell(
        host,
        [(names.get(name, name), got["chunks"], got["bytes"]) for name, got in answer["sources"].items()],
    )
    for planned, used in answer["instead"].items():
        for source, number in used.items():
            there, here = names.get(planned, planned), names.get(source, source)
            said = f"{counted(number, 'chunk')} planned from {there} came from {here}"
            click.echo(f"    {host.name}: {said}", err=True)
    reasons = Counter((each["source"], each["why"]) for each in answer["failed"])
    for each in answer["passed_over"]:
        reasons[each["source"], each["why"]] += each["chunks"]
    for (source, why), number in reasons.items():
        click.echo(
            f"    {host.name}: {counted(number, 'chunk')} not from {names.get(source, source)}: {why}",
            err=True,
        )
