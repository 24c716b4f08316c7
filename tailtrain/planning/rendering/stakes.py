"""What is at stake in a plan: a few lines that a person says yes to, what cannot be undone last."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.parts import CONTROL_MACHINE, counted, megabytes
from tailtrain.planning.rendering.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.planning.documents.host import HostEntry
    from tailtrain.planning.documents.plan import PlanDocument

_NAMED = 8
"""So many hosts are named; of more, the plan above has the names."""
_REMOVED = {
    layout.RUN_DIR: "old run",
    layout.CHUNK_DIR: "unused chunk",
    layout.MANIFEST_DIR: "unused manifest",
    layout.ENVIRONMENT_DIR: "unused environment",
    layout.CODE_DIR: "unused code",
}


def stakes(document: PlanDocument) -> list[str]:
    """What carrying out a plan does, each line an instruction; empty where it does nothing."""
    return [
        printable(line)
        for line in (
            *_installing(document),
            *_changing(document),
            *_sending(document),
            *_training(document),
            *_unknown(document),
            *_interrupting(document),
            *_removing(document),
            *_leaving(document),
        )
    ]


def _installing(document: PlanDocument) -> Iterator[str]:
    new = [host for host in document.hosts if host.verdict == "first install"]
    if new:
        yield f"install the worker on {_hosts(new)}"
    packages: dict[str, list[HostEntry]] = {}
    for host in document.hosts:
        for action in host.actions:
            if action.key == "packages":
                packages.setdefault(action.what, []).append(host)
    for what, hosts in packages.items():
        yield f"{what} with apt on {_hosts(hosts)}"


def _changing(document: PlanDocument) -> Iterator[str]:
    changed = [host for host in document.hosts if host.verdict == "update"]
    if changed:
        yield f"change files on {_hosts(changed)}"
    started = [host for host in document.hosts if host.verdict == "start the worker"]
    if started:
        yield f"start the worker on {_hosts(started)}"


def _sending(document: PlanDocument) -> Iterator[str]:
    for host in document.hosts:
        yield from (action.what for action in host.actions if action.key == "upload")
    for verb, to, ours in (("send", "to", True), ("have", "fetched by", False)):
        coming = {
            host.name: [each for each in host.sources if (each.source == CONTROL_MACHINE) is ours]
            for host in document.hosts
        }
        entries = [each for sources in coming.values() for each in sources]
        if entries:
            hosts = [host for host in document.hosts if coming[host.name]]
            chunks, size = sum(each.chunks for each in entries), sum(each.bytes for each in entries)
            yield f"{verb} {counted(chunks, 'chunk')} ({megabytes(size)}) {to} {_hosts(hosts)}"


def _training(document: PlanDocument) -> Iterator[str]:
    keys = {action.key for host in document.hosts for action in host.actions}
    if "watch" in keys:
        tokens = document.settings["training.target_tokens"]
        yield f"train run {document.run.id} to its end, {tokens:,} tokens, and judge the model"
    elif "validate" in keys:
        yield f"judge the model of run {document.run.id}"


def _unknown(document: PlanDocument) -> Iterator[str]:
    away = [host for host in document.hosts if host.unknown]
    if away:
        yield f"go on without {_hosts(away)}, which {'does' if len(away) == 1 else 'do'} not answer"


def _interrupting(document: PlanDocument) -> Iterator[str]:
    restarted = [host for host in document.hosts if host.verdict == "restart the worker"]
    if restarted:
        cut = dict.fromkeys(host.interrupts for host in restarted if host.interrupts)
        what = f" (interrupts {'; '.join(cut)})" if cut else ""
        yield f"restart the worker on {_hosts(restarted)}{what}"


def _removing(document: PlanDocument) -> Iterator[str]:
    removed = [each for each in document.destructive if each.kind == "remove"]
    if not removed:
        return
    paths = {path for each in removed for path in each.paths}
    numbers = Counter(_REMOVED.get(path.rpartition("/")[0], "unused file") for path in sorted(paths))
    things = ", ".join(counted(number, noun) for noun, number in numbers.items())
    names = {each.host for each in removed}
    hosts = [host for host in document.hosts if host.name in names]
    yield f"remove {things} ({megabytes(sum(each.bytes for each in removed))}) on {_hosts(hosts)}"


def _leaving(document: PlanDocument) -> Iterator[str]:
    for host in document.departed:
        keys = {action.key for action in host.actions}
        if keys:
            does = [
                *(["stop the worker"] if "drain" in keys else []),
                *([f"remove all that is ours ({megabytes(host.frees)})"] if "clean" in keys else []),
            ]
            yield f"{' and '.join(does)} on {host.name}, which left the fleet"


def _hosts(hosts: Sequence[HostEntry]) -> str:
    if len(hosts) > _NAMED:
        return counted(len(hosts), "host")
    return ", ".join(host.name for host in hosts)
