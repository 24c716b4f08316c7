"""A plan as text: at most 80 columns where names allow, the same bytes for the same plan, nothing cut off."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tailtrain.planning.parts import CONTROL_MACHINE, counted, megabytes
from tailtrain.planning.rendering.division import division, training_of_a_division
from tailtrain.planning.rendering.hosts import (
    departed,
    drift,
    hardware,
    movement,
    nodes,
    preflight,
    unknown,
    warnings,
)
from tailtrain.planning.rendering.text import printable, table, wrapped
from tailtrain.planning.rendering.topology import topology
from tailtrain.planning.rendering.work import destructive, diffs, known_later, phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.planning.documents.plan import PlanDocument

# How the summary speaks of hosts with these verdicts, in this order; others are spoken of as they are.
_VERDICTS = {
    "first install": "to install",
    "restart the worker": "to restart",
    "start the worker": "to start",
    "update": "to update",
    "upload": "to stand for an upload",
    "validate": "to validate",
    "clean up": "to clean up",
    "new receipt": "to get a receipt",
    "goes on training": "going on training",
}
_SAID_ELSEWHERE = ("no change", "unknown")


def render_plan(document: PlanDocument, *, diff: bool = False, read_only: bool = False) -> str:
    """The whole plan, or little where nothing is to be done.

    Args:
        document: the plan.
        diff: also show what changes in each text file.
        read_only: say that nothing was changed, where the plan is all that was asked for.
    """
    run = document.run
    trained = "" if run.trained is None or run.state == "finished" else f", {run.trained:.0%} trained"
    head = [f"Plan {document.id}: run {run.id} ({run.state or 'new'}{trained})"]
    if read_only:
        head.append("Read-only: nothing was changed.")
    sections: list[Sequence[str]] = [head, _lock(document), warnings(document), drift(document)]
    sections += [unknown(document), departed(document)]
    if document.changes:
        sections += [_training(document), _data(document), nodes(document), division(document)]
        sections.append(topology(document))
        sections += [preflight(document), hardware(document)]
        sections += [movement(document), phases(document), known_later(document)]
        sections += diffs(document) if diff else [_no_diff(document)]
        sections.append(destructive(document))
    sections.append(wrapped(summary(document)))
    return "\n".join("".join(f"{printable(line)}\n" for line in lines) for lines in sections if lines)


def summary(document: PlanDocument) -> str:
    """One sentence: how much will be done, and how much of the fleet is unknown."""
    totals = document.totals
    away = [host.name for host in document.hosts if host.unknown]
    tail = f" Unknown: {', '.join(away)}." if away else ""
    if len(away) == totals.hosts:
        return f"Nothing is known: none of {counted(totals.hosts, 'host')} answered.{tail}"
    if not document.changes:
        are = "is" if totals.unchanged == 1 else "are"
        return f"No changes: {counted(totals.unchanged, 'host')} {are} as declared.{tail}"
    found = Counter(host.verdict for host in document.hosts if host.verdict not in _SAID_ELSEWHERE)
    parts: list[str] = []
    for verdict in dict.fromkeys([*_VERDICTS, *found]):
        if number := found[verdict]:
            words = _VERDICTS.get(verdict, verdict)
            parts.append(f"{number if parts else counted(number, 'host')} {words}")
    if leaving := sum(bool(host.actions) for host in document.departed):
        parts.append(f"{leaving} leaving")
    if totals.unchanged:
        parts.append(f"{totals.unchanged} unchanged")
    chunks = (
        f"{counted(totals.chunks_to_send, 'chunk')} ({megabytes(totals.bytes_to_send)}) to {_verb(document)}"
    )
    frees = f"{megabytes(totals.bytes_freed)} to remove" if totals.bytes_freed else "nothing to remove"
    work = [chunks if totals.chunks_to_send else "no chunk to send", frees]
    if totals.packs_to_upload:
        packs = counted(totals.packs_to_upload, "pack")
        work.insert(0, f"{packs} ({megabytes(totals.bytes_to_upload)}) to upload")
    return f"Plan: {', '.join(parts)}; {', '.join(work)}.{tail}"


def _verb(document: PlanDocument) -> str:
    """How chunks come to hosts."""
    sources = {each.source == CONTROL_MACHINE for host in document.hosts for each in host.sources}
    return "send or fetch" if len(sources) > 1 else "fetch" if sources == {False} else "send"


def _lock(document: PlanDocument) -> list[str]:
    lock = document.lock
    if lock is None:
        return []
    return [
        *wrapped(
            f"Locked: {lock.who} deploys since {lock.since}, plan {lock.plan or 'not known'}.", hanging=2
        ),
        *wrapped("Nobody else can deploy until they are done.", indent=2, hanging=2),
        *wrapped(f"If they are gone: tailtrain unlock {lock.token}", indent=2, hanging=4),
    ]


def _training(document: PlanDocument) -> list[str]:
    """What a training that is still to be done will be, in the words of its settings."""
    if all(action.key != "watch" for host in document.hosts for action in host.actions):
        return []
    get = document.settings
    if document.division:
        return wrapped(
            f"Training: {get['distribution_strategy']}, {get['coordination_protocol']};"
            f" {get['model.layers']} layers of width {get['model.width']};"
            f" {training_of_a_division(document)}"
        )
    seconds = document.topology.expected.training_seconds if document.topology else 0.0
    return wrapped(
        f"Training: {get['distribution_strategy']}, {get['coordination_protocol']};"
        f" {get['model.layers']} layers of width {get['model.width']};"
        f" {get['training.target_tokens']:,} tokens in rounds of {round(seconds, 1):g} s,"
        f" {get['training.batch_size']} x {get['model.context']} tokens a step and node"
    )


def _no_diff(document: PlanDocument) -> list[str]:
    """Where files change that are there: how they do is not shown unless asked for."""
    hosts = sum(any(file.before_sha256 for file in host.files) for host in document.hosts)
    return [f"Files change on {counted(hosts, 'host')}: --diff shows how."] if hosts else []


def _data(document: PlanDocument) -> list[str]:
    rows: list[Sequence[object]] = [("Data set", "records", "trained on", "held out", "chunks", "MB")]
    rows += [
        (
            d.domain,
            f"{d.records:,}",
            f"{d.trained_on:,}",
            f"{d.held_out:,}",
            f"{d.chunks:,}",
            f"{d.bytes / 1e6:,.1f}",
        )
        for d in document.datasets
    ]
    return table(rows, right=(1, 2, 3, 4, 5), indent=0)
