"""From one host's part of a plan to its part of the document."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tailtrain.planning.documents.host import (
    ActionEntry,
    Applied,
    DriftEntry,
    FileEntry,
    Hardware,
    HostEntry,
    Limits,
    MoveEntry,
    PreflightEntry,
    RemovalEntry,
    SourceEntry,
    Unknown,
)
from tailtrain.planning.documents.of_topology import work_of
from tailtrain.planning.rendering.diffs import is_binary, size_and_sha256
from tailtrain.planning.secrets import masked

if TYPE_CHECKING:
    from tailtrain.planning.documents.plan import Gate
    from tailtrain.planning.parts import Action, FileChange, Preflight
    from tailtrain.planning.plan import HostPlan, Plan


def said(text: str) -> str:
    """What somebody else said, with secrets masked, and as something that JSON can hold."""
    return masked(text).encode(errors="backslashreplace").decode()


def host_entry(host: HostPlan, plan: Plan, gate: Gate) -> HostEntry:
    """Everything about one host."""
    node, limits, receipt = host.node, host.limits, host.old_receipt
    return HostEntry(
        name=node.hostname,
        role=node.role.value,
        verdict=host.verdict,
        unknown=_unknown(host, plan, gate),
        declared=Hardware(cores=node.cores, ram_gb=node.ram_gb, gpu=node.has_gpu, storage_gb=node.storage_gb),
        share=host.share,
        quotas=dict(host.quotas),
        work=work_of(plan.topology, node.hostname),
        path=said(host.path),
        emulated=host.emulated,
        environment=host.lock,
        config_sha256=host.config_sha256,
        limits=Limits(**{name: getattr(limits, name) for name in Limits.__struct_fields__})
        if limits
        else None,
        notes=tuple(said(note) for note in host.notes),
        preflight=_preflight(host.preflight) if host.preflight else None,
        drift=tuple(
            DriftEntry(**{name: said(value) for name, value in asdict(each).items()}) for each in host.drift
        ),
        actions=tuple(action_entry(action) for action in host.actions),
        files=tuple(_file(change) for change in host.files),
        chunks=tuple(chunk.sha256 for chunk in host.chunks),
        manifests=host.manifests,
        moves=tuple(
            MoveEntry(why=said(m.why), detail=said(m.detail), chunks=m.chunks, bytes=m.bytes)
            for m in host.moves
        ),
        sources=tuple(
            SourceEntry(source=said(s.source), why=said(s.why), chunks=s.chunks, bytes=s.bytes)
            for s in host.sources
        ),
        seconds_to_send=host.seconds_to_send,
        send_rate=said(host.send_rate),
        interrupts=said(host.interrupts),
        removals=tuple(
            RemovalEntry(what=said(r.what), why=said(r.why), paths=tuple(map(said, r.paths)), bytes=r.bytes)
            for r in host.removals
        ),
        applied=Applied(**{name: said(getattr(receipt, name)) for name in Applied.__struct_fields__})
        if receipt
        else None,
    )


def action_entry(action: Action) -> ActionEntry:
    """An action as the document has it."""
    return ActionEntry(phase=action.phase.value, key=action.key, what=said(action.what), why=said(action.why))


def _preflight(preflight: Preflight) -> PreflightEntry:
    return PreflightEntry(
        key_expires=preflight.key_expires,
        key_days=preflight.key_days,
        disk_free_bytes=preflight.disk_free_bytes,
        disk_needed_bytes=preflight.disk_needed_bytes,
        clock_skew_seconds=preflight.clock_skew_seconds,
        declared=said(preflight.declared),
        found=said(preflight.found),
        warnings=tuple(said(warning) for warning in preflight.warnings),
    )


def _file(change: FileChange) -> FileEntry:
    before_bytes, before_sha256 = size_and_sha256(change.before)
    after_bytes, after_sha256 = size_and_sha256(change.after)
    return FileEntry(
        path=change.path,
        mode=change.mode,
        group=change.group,
        binary=is_binary((change.before or "") + change.after),
        before_sha256=before_sha256,
        before_bytes=before_bytes,
        after_sha256=after_sha256 or "",
        after_bytes=after_bytes or 0,
    )


def _unknown(host: HostPlan, plan: Plan, gate: Gate) -> Unknown | None:
    if host.unreachable is None:
        return None
    answers = "the next plan shows what is there, and it gets what it lacks"
    if plan.settings.shares_data:
        answers += f"; its {sum(host.quotas.values()):,} records wait for it"
    left = f"{gate.reachable} of {gate.nodes} nodes are left, {gate.needed} are needed"
    if host.node.hostname == gate.primary:
        away = "nothing is done: no phase begins without the primary"
    elif plan.primary.unreachable:
        away = "nothing is done: the primary did not answer either"
    elif not plan.changes:
        away = "nothing else is to be done, and nobody waits for it"
    elif gate.open:
        away = f"the others go on without it: {left}"
    else:
        away = f"nothing is done: {left}"
    return Unknown(reason=said(host.unreachable), if_it_answers=answers, if_it_stays_away=away)
