"""What a plan's text says of hosts: shares, what stands out, what drifted, what is unknown, what is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.parts import CONTROL_MACHINE, counted, megabytes
from tailtrain.planning.rendering.text import columns, duration, listed, share, table, tables, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.planning.documents.host import HostEntry, PreflightEntry, SourceEntry
    from tailtrain.planning.documents.plan import PlanDocument

ONE = 65536
# What is within these needs no line of its own.
KEY_DAYS, CLOCK_SECONDS, DISK_FACTOR = 30.0, 0.5, 2.0


def nodes(document: PlanDocument) -> list[str]:
    """Who has which part of the work, and what happens to each; the sums are checked below."""
    domains = [dataset.domain for dataset in document.datasets]
    sharded = all(dataset.shared_out is not None for dataset in document.datasets)
    shown = domains if sharded else []
    rows: list[Sequence[object]] = [("Node", "role", "cores", "share", *shown, "what happens")]
    for host in document.hosts:
        quotas = [f"{host.quotas[domain]:,}" for domain in shown]
        rows.append((host.name, host.role, _cores(host), share(host.share), *quotas, host.verdict))
    cores, whole = sum(host.declared.cores for host in document.hosts), document.totals.share
    sums = [f"{dataset.shared_out:,}" for dataset in document.datasets if sharded]
    rows.append(("sum", "", cores, share(whole), *sums, ""))
    return [*tables(rows, right=range(2, 4 + len(shown)), indent=0), *_sum_check(document)]


def _sum_check(document: PlanDocument) -> list[str]:
    parts = [f"shares {document.totals.share}/{ONE}"]
    right = document.totals.share == ONE
    for dataset in document.datasets:
        if dataset.shared_out is None:
            parts.append(f"each node has all of {dataset.domain}")
        else:
            parts.append(f"{dataset.domain} {dataset.shared_out:,}/{dataset.trained_on:,}")
            right = right and dataset.shared_out == dataset.trained_on
    return wrapped(f"check: {', '.join(parts)}: {'exact' if right else 'NOT EQUAL'}")


def preflight(document: PlanDocument) -> list[str]:
    """What stands out before anything is done: only such hosts and such columns; the rest in one line."""
    looked = [(host, host.preflight) for host in document.hosts if host.preflight and not host.unknown]
    marks = [(host, found, _standing_out(host, found)) for host, found in looked]
    fine = [host for host, _, mark in marks if not any(mark)]
    rows: list[list[str]] = []
    used = [column for column in range(len(_HEADINGS)) if any(mark[column] for _, _, mark in marks)]
    for host, found, mark in marks:
        if any(mark):
            cells = _cells(host, found)
            rows.append([host.name, *(cells[column] for column in used)])
    if not looked:
        return []
    words = f"direct path, key good for {KEY_DAYS:.0f} days, clock within {CLOCK_SECONDS:g} s, ample disk"
    lines = ["Preflight"]
    if fine:
        everyone = not rows and len(fine) > 1
        that = "" if len(fine) == len(document.hosts) else " that answered"
        who = f"all {len(fine)} hosts{that}" if everyone else _names(fine)
        lines += wrapped(f"{who}: {words}", indent=2, hanging=4)
    if rows:
        lines += tables([["Host", *(_HEADINGS[column] for column in used)], *rows])
    return lines


_HEADINGS = ("path", "key expires", "disk free", "needed", "clock")


def _standing_out(host: HostEntry, found: PreflightEntry) -> tuple[bool, ...]:
    low = found.disk_free_bytes < DISK_FACTOR * found.disk_needed_bytes
    return (
        not host.path.startswith(("direct", "local")),
        found.key_days is not None and found.key_days < KEY_DAYS,
        low,
        low,
        abs(found.clock_skew_seconds) > CLOCK_SECONDS,
    )


def _cells(host: HostEntry, found: PreflightEntry) -> tuple[str, ...]:
    days = "never" if found.key_days is None else f"in {counted(int(found.key_days), 'day')}"
    return (
        host.path or "unknown",
        days,
        megabytes(found.disk_free_bytes),
        megabytes(found.disk_needed_bytes),
        f"{found.clock_skew_seconds:+.1f} s",
    )


def hardware(document: PlanDocument) -> list[str]:
    """What was found otherwise than declared, and what follows."""
    rows: list[tuple[str, str]] = []
    said: dict[str, list[HostEntry]] = {}
    for host in document.hosts:
        for note in host.notes:
            said.setdefault(note, []).append(host)
    for host in document.hosts:
        own = [note for note in host.notes if len(said[note]) == 1]
        if own and host.preflight and host.preflight.declared and not host.emulated:
            rows.append((host.name, f"declared {host.preflight.declared}; found {host.preflight.found}"))
        rows += [(host.name, note) for note in own]
    shared = [(note, hosts) for note, hosts in said.items() if len(hosts) > 1]
    lines = ["Hardware", *columns(rows)] if rows or shared else []
    for note, hosts in shared:
        lines += wrapped(f"{_names(hosts)}: {note}", indent=2, hanging=4)
    return lines


def warnings(document: PlanDocument) -> list[str]:
    """What may go wrong, host by host."""
    rows = [(h.name, warning) for h in document.hosts if h.preflight for warning in h.preflight.warnings]
    return ["Warnings", *columns(rows)] if rows else []


def drift(document: PlanDocument) -> list[str]:
    """What somebody else changed since the last deploy, three ways."""
    lines: list[str] = []
    for host in document.hosts:
        for each in host.drift:
            lines += wrapped(f"{host.name}: {each.subject}", indent=2, hanging=4)
            three = (("receipt", each.receipt), ("found", each.found), ("wanted", each.wanted))
            lines += columns(three, indent=4)
    return ["Drift: not as the last deploy left it", *lines] if lines else []


def unknown(document: PlanDocument) -> list[str]:
    """Hosts that did not answer, and what follows if they come back or not."""
    lines: list[str] = []
    groups: dict[tuple[str, str], list[HostEntry]] = {}
    for host in document.hosts:
        if host.unknown:
            groups.setdefault((host.unknown.reason, host.unknown.if_it_stays_away), []).append(host)
    for (reason, away), hosts in groups.items():
        lines += wrapped(f"{_names(hosts)}: unreachable, what is there is unknown", hanging=2)
        lines += wrapped(reason, indent=2, hanging=4)
        answers: dict[str, list[HostEntry]] = {}
        for host in hosts:
            if host.unknown:
                answers.setdefault(host.unknown.if_it_answers, []).append(host)
        for answer, those in answers.items():
            it = "it" if len(hosts) == 1 else _names(those)
            verb = "answers" if len(those) == 1 else "answer"
            lines += wrapped(f"if {it} {verb} again: {answer}", indent=2, hanging=4)
        they = "it stays" if len(hosts) == 1 else "they stay"
        lines += wrapped(f"if {they} away: {away}", indent=2, hanging=4)
    return lines


def departed(document: PlanDocument) -> list[str]:
    """Hosts that left the inventory, and what becomes of what they have."""
    rows: list[tuple[str, str]] = []
    for host in document.departed:
        if host.gone:
            what = "the tailnet does not know it any more: nothing can be done there"
        elif host.unreachable:
            stays = "what it has stays there until it answers; it is forgotten when it leaves the tailnet"
            what = f"unreachable: {stays}\n{host.unreachable}"
        elif host.actions:
            what = "\n".join(action.what for action in host.actions)
        elif host.frees:
            what = f"keeps {megabytes(host.frees)} of ours until all hosts of the inventory answer"
        else:
            what = "has nothing of ours any more"
        rows.append((host.name, what))
    return ["Left the inventory", *columns(rows)] if rows else []


def movement(document: PlanDocument) -> list[str]:
    """Which chunks go where, why, from where, how long that takes, and how little could be moved at best."""
    rows: list[Sequence[object]] = []
    for host in document.hosts:
        if host.moves:
            time = duration(host.seconds_to_send) if host.seconds_to_send else ""
            chunks, size = sum(move.chunks for move in host.moves), sum(move.bytes for move in host.moves)
            rows.append((host.name, f"{chunks:,}", megabytes(size), time))
    totals = document.totals
    lines: list[str] = []
    if rows:
        slowest = duration(totals.seconds_to_send) if totals.seconds_to_send else ""
        foot = ("total", f"{totals.chunks_to_send:,}", megabytes(totals.bytes_to_send), slowest)
        lines += table([("Host", "chunks", "size", "time"), *rows, foot], right=(1, 2))
        speeds = [host.send_rate for host in document.hosts if host.moves and host.send_rate]
        rates = dict.fromkeys(rate for speed in speeds for rate in speed.split(", "))
        lines += wrapped(f"time at {', at '.join(rates)}", indent=2, hanging=4) if rates else []
    for dataset in document.datasets:
        if dataset.moved:
            least = "" if dataset.least_moved is None else f", the least possible is {dataset.least_moved:,}"
            records = f"{counted(dataset.moved, 'record')} to another node than before"
            lines += wrapped(f"{dataset.domain}: {records}{least}", indent=2, hanging=4)
    lines += ["", *_reasons(document), *_sources(document)] if rows else []
    return ["Data to move", *lines] if lines else []


def _reasons(document: PlanDocument) -> list[str]:
    """Why chunks go where they go, each reason once, with how many that are on each host."""
    found: dict[str, list[str]] = {}
    for host in document.hosts:
        for move in host.moves:
            detail = f" ({move.detail})" if move.detail else ""
            found.setdefault(move.why, []).append(f"{host.name} {move.chunks:,}{detail}")
    return [line for why, hosts in found.items() for line in listed(f"{why}:", hosts, indent=2)]


def _sources(document: PlanDocument) -> list[str]:
    """Where chunks come from, and why from there; nothing where the control machine sends them all.

    Nodes that give for the same reason share a heading; the control machine or the backend comes first.
    """
    names = [host.name for host in document.hosts]
    found: dict[str, dict[str, list[tuple[str, SourceEntry]]]] = {}
    for host in document.hosts:
        for each in host.sources:
            giver = "a node that" if each.source in names else each.source
            heading = f"from {giver} {each.why}" if each.source in names else f"from {giver} ({each.why})"
            found.setdefault(heading, {}).setdefault(each.source, []).append((host.name, each))
    if all(source == CONTROL_MACHINE for sources in found.values() for source in sources):
        return []
    lines: list[str] = []
    for heading, sources in sorted(found.items(), key=lambda item: not set(item[1]).isdisjoint(names)):
        lines += wrapped(heading, indent=2, hanging=4)
        for source in sorted(sources, key=lambda name: names.index(name) if name in names else 0):
            entries = sources[source]
            chunks, size = sum(each.chunks for _, each in entries), sum(each.bytes for _, each in entries)
            said = f"{counted(chunks, 'chunk')}, {megabytes(size)}:"
            if source in names:
                said = f"{source} gives {said}"
            lines += listed(said, [f"{name} {each.chunks:,}" for name, each in entries], indent=4)
    return ["", *lines]


def _cores(host: HostEntry) -> str:
    """The declared cores, and how many of them are used where that is not all."""
    used = host.limits.usable_cores if host.limits and not host.emulated else host.declared.cores
    return str(host.declared.cores) if used >= host.declared.cores else f"{used:g} of {host.declared.cores}"


def _names(hosts: Sequence[HostEntry]) -> str:
    return ", ".join(host.name for host in hosts)
