"""What a plan's text says of the work: phases and gates, what is known later, diffs, what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.parts import ACTION_ORDER, counted, megabytes
from tailtrain.planning.rendering.text import printable, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailtrain.planning.documents.plan import Destruction, PhaseEntry, PlanDocument

_KINDS = {
    "interrupt": "Interrupted",
    "remove": "Removed from hosts, last of all",
    "leave": "Removed from hosts that left the fleet, last of all",
}
# Actions of which every host's part is listed elsewhere in the text.
_LISTED = {
    "chunks": "bring the chunks listed above",
    "copies": "fetch those listed above that other nodes get first",
    "prune": "remove what is listed below",
}


def phases(document: PlanDocument) -> list[str]:
    """The phases in their order, what is done in each and where, and the gate between them."""
    lines: list[str] = []
    idle = [phase.title for phase in document.phases if not phase.hosts]
    for phase in document.phases:
        if phase.hosts:
            lines += [phase.title, *_phase(document, phase)]
    if idle:
        lines += wrapped(f"nothing to do: {', '.join(idle)}", hanging=2)
    gate = document.gate
    lines += wrapped(
        f"gate after each phase: the primary ({gate.primary}) and {gate.needed} of {gate.nodes} nodes"
    )
    if not gate.open:
        lines += wrapped(
            f"the gate is shut: {gate.reachable} of {gate.nodes} answered; nothing is done until more do"
        )
    return lines


def _phase(document: PlanDocument, phase: PhaseEntry) -> Iterator[str]:
    """Hosts that do the same for the same reason share a line."""
    groups: dict[tuple[int, str, str], list[str]] = {}
    listed = {key: {h.name for h in document.hosts if h.moves} for key in ("chunks", "copies")}
    listed["prune"] = {each.host for each in document.destructive if each.kind == "remove"}
    hosts = [(host.name, host.actions) for host in document.hosts]
    hosts += [(host.name, host.actions) for host in document.departed]
    for name, actions in hosts:
        for action in actions:
            if action.phase == phase.name:
                elsewhere = name in listed.get(action.key, ())
                said = (_LISTED[action.key], "") if elsewhere else (action.what, action.why)
                groups.setdefault((ACTION_ORDER.index(action.key), *said), []).append(name)
    answered = [host.name for host in document.hosts if not host.unknown]
    everyone = "hosts" if len(answered) == len(document.hosts) else "hosts that answered"
    for (place, what, why), names in sorted(groups.items(), key=lambda item: item[0][0]):
        yield from wrapped(f"{what} ({why})" if why else what, indent=2, hanging=4)
        who = f"all {len(names)} {everyone}" if len(names) > 1 and names == answered else ", ".join(names)
        # The primary stands for the fleet: its plan has what this machine does for all.
        here = ACTION_ORDER[place] == "upload"
        yield from wrapped("on this machine" if here else f"on {who}", indent=4, hanging=6)


def known_later(document: PlanDocument) -> list[str]:
    """What no plan can tell yet."""
    lines = [
        line
        for each in document.known_later
        for line in wrapped(f"{each.what} (known after {each.after})", indent=2, hanging=4)
    ]
    return ["Not known yet", *lines] if lines else []


def diffs(document: PlanDocument) -> list[list[str]]:
    """Unified diffs without context, one section for the hosts that change a file in the same way."""
    sections = []
    for diff in document.diffs:
        lines = wrapped(f"{diff.path} on {', '.join(diff.hosts)}", hanging=2)
        lines += [f"  --- {diff.before}", "  +++ planned"]
        lines += [f"  {printable(line)}" for hunk in diff.hunks for line in hunk]
        sections.append(lines)
    return [*sections, *_binaries(document)]


def _binaries(document: PlanDocument) -> Iterator[list[str]]:
    for host in document.hosts:
        for file in host.files:
            if file.binary:
                before = "no such file"
                if file.before_bytes is not None:
                    before = f"{counted(file.before_bytes, 'byte')}, SHA-256 {file.before_sha256}"
                yield [
                    *wrapped(f"{file.path} on {host.name}: not text", hanging=2),
                    *wrapped(f"--- {before}", indent=2),
                    *wrapped(
                        f"+++ {counted(file.after_bytes, 'byte')}, SHA-256 {file.after_sha256}", indent=2
                    ),
                ]


def destructive(document: PlanDocument) -> list[str]:
    """What is interrupted and what is removed, apart from all else."""
    lines: list[str] = []
    for kind, title in _KINDS.items():
        found = [each for each in document.destructive if each.kind == kind]
        if found:
            losses: dict[str, list[str]] = {}
            for each in found:
                losses.setdefault(_loss(each), []).append(each.host)
            lines.append(title)
            for loss, hosts in losses.items():
                lines += wrapped(f"{', '.join(hosts)}: {loss}", indent=2, hanging=4)
    return lines


def _loss(each: Destruction) -> str:
    frees = f", frees {megabytes(each.bytes)}" if each.bytes and each.kind == "remove" else ""
    return f"{each.what}{frees} ({each.why})" if each.why else f"{each.what}{frees}"
