"""What changed since a plan was saved, in plain sentences: why it no longer holds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tailtrain.planning.parts import counted
from tailtrain.planning.rendering.text import share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tailtrain.planning.documents.host import (
        ActionEntry,
        DepartedEntry,
        FileEntry,
        HostEntry,
        SourceEntry,
    )
    from tailtrain.planning.documents.plan import PlanDocument


def compare(saved: PlanDocument, now: PlanDocument) -> list[str]:
    """What is otherwise now than when a plan was saved: the declaration first, then host by host.

    Empty where both are the same plan, never where they are not.
    """
    if saved.id == now.id:
        return []
    told = [*_declared(saved, now), *_folded(_hosts(saved, now)), *_departed(saved, now)]
    return told or ["something that hosts have is otherwise, in a way that no plan spells out"]


def _declared(saved: PlanDocument, now: PlanDocument) -> Iterator[str]:
    for name in dict.fromkeys([*saved.settings, *now.settings]):
        yield from _otherwise(f"group_data: {name}", saved.settings.get(name), now.settings.get(name))
    before = {dataset.domain: dataset for dataset in saved.datasets}
    for dataset in now.datasets:
        was = before.get(dataset.domain)
        if was and was.manifest != dataset.manifest:
            yield (
                f"data set {dataset.domain}: another content, {counted(dataset.records, 'record')} now,"
                f" {counted(was.records, 'record')} then"
            )
    yield from _otherwise("the worker's code", saved.code, now.code)
    yield from _otherwise("nodes that a phase needs", saved.gate.needed, now.gate.needed)
    if saved.run.id != now.run.id:
        yield f"another run: {now.run.id} ({now.run.state or 'new'}) now, {saved.run.id} then"
    else:
        yield from _otherwise(f"run {now.run.id}", saved.run.state or "new", now.run.state or "new")
    if now.lock and now.lock != saved.lock:
        yield f"{now.lock.who} deploys since {now.lock.since}"


def _folded(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Hosts of which the same is to be said share a sentence."""
    hosts: dict[str, list[str]] = {}
    for name, what in told:
        hosts.setdefault(what, []).append(name)
    return (f"{', '.join(names)}: {what}" for what, names in hosts.items())


def _hosts(saved: PlanDocument, now: PlanDocument) -> Iterator[tuple[str, str]]:
    before, after = ({host.name: host for host in plan.hosts} for plan in (saved, now))
    for name in dict.fromkeys([*after, *before]):
        if name not in before:
            yield name, "in the inventory now, not then"
        elif name not in after:
            yield name, "not in the inventory any more"
        else:
            yield from ((name, what) for what in _host(before[name], after[name]))


def _host(saved: HostEntry, now: HostEntry) -> Iterator[str]:
    if now.unknown:
        if not saved.unknown:
            yield f"unreachable now, {_one_line(now.unknown.reason)}"
        elif saved.unknown.reason != now.unknown.reason:
            yield f"unreachable for another reason: {_one_line(now.unknown.reason)}"
        return
    if saved.unknown:
        yield "answers now, was unreachable then"
        return
    for name in ("cores", "ram_gb", "gpu", "storage_gb"):
        yield from _otherwise(f"declared {name}", getattr(saved.declared, name), getattr(now.declared, name))
    yield from _otherwise("role", saved.role, now.role)
    yield from _otherwise("share", share(saved.share), share(now.share))
    yield from _otherwise("environment", saved.environment, now.environment)
    known = {(each.subject, each.found) for each in saved.drift}
    since = {each.subject: each.found for each in now.drift if (each.subject, each.found) not in known}
    yield from (f"{subject} was changed there since: {found}" for subject, found in since.items())
    yield from (what for path, what in _files(saved.files, now.files) if path not in since)
    yield from _lacking("chunk", saved.chunks, now.chunks)
    yield from _lacking("manifest", saved.manifests, now.manifests)
    if saved.chunks == now.chunks:
        yield from _sources(saved.sources, now.sources)
    yield from _actions(saved.actions, now.actions)
    if [removal.paths for removal in saved.removals] != [removal.paths for removal in now.removals]:
        yield f"{_removed(now)} to be removed now, {_removed(saved)} then"
    if not saved.files and not now.files:
        yield from _otherwise("configuration", saved.config_sha256[:12], now.config_sha256[:12])


def _files(saved: Sequence[FileEntry], now: Sequence[FileEntry]) -> Iterator[tuple[str, str]]:
    """What is otherwise about each file, with its path."""
    before, after = ({file.path: file for file in files} for files in (saved, now))
    for path in dict.fromkeys([*after, *before]):
        if path not in before:
            yield path, f"{path} is to be written now, was as wanted then"
        elif path not in after:
            yield path, f"{path} is as wanted now"
        else:
            if before[path].before_sha256 != after[path].before_sha256:
                yield path, f"{path} on the host is another file than then"
            if before[path].after_sha256 != after[path].after_sha256:
                yield path, f"{path} is to be written otherwise"


def _lacking(noun: str, saved: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    if more := len({*now} - {*saved}):
        yield f"lacks {counted(more, noun)} that it had or did not need then"
    if fewer := len({*saved} - {*now}):
        yield f"has {counted(fewer, noun)} that it lacked then, or does not need them any more"


def _sources(saved: Sequence[SourceEntry], now: Sequence[SourceEntry]) -> Iterator[str]:
    """From where the same chunks come otherwise."""
    before, after = (Counter[str](), Counter[str]())
    for entries, counts in ((saved, before), (now, after)):
        for each in entries:
            counts[each.source] += each.chunks
    for source in dict.fromkeys([*after, *before]):
        yield from _otherwise(f"chunks from {source}", before[source] or "none", after[source] or "none")


def _actions(saved: Sequence[ActionEntry], now: Sequence[ActionEntry]) -> Iterator[str]:
    before, after = ({action.key: action for action in actions} for actions in (saved, now))
    for key in dict.fromkeys([*after, *before]):
        if key not in before:
            yield f"now also: {after[key].what} ({after[key].why})"
        elif key not in after:
            yield f"no longer: {before[key].what}"
        elif before[key] != after[key]:
            new, old = after[key], before[key]
            yield f"now: {new.what} ({new.why}); then: {old.what} ({old.why})"


def _removed(host: HostEntry) -> str:
    """What is removed, by name: two lists of the same length may still be of other files."""
    paths = [path.rsplit("/", 1)[1][:16] for removal in host.removals for path in removal.paths]
    return ", ".join(paths) or "nothing"


def _departed(saved: PlanDocument, now: PlanDocument) -> Iterator[str]:
    before, after = ({host.name: host for host in plan.departed} for plan in (saved, now))
    for name in dict.fromkeys([*after, *before]):
        if name not in before:
            yield f"{name}: left the fleet, and has something of ours"
        elif name not in after:
            yield f"{name}: no host knows of it any more"
        else:
            yield from (f"{name}: {what}" for what in _left(before[name], after[name]))


def _left(saved: DepartedEntry, now: DepartedEntry) -> Iterator[str]:
    if saved.unreachable != now.unreachable:
        yield f"unreachable now, {_one_line(now.unreachable)}" if now.unreachable else "answers now"
    yield from _actions(saved.actions, now.actions)


def _otherwise(what: str, saved: object, now: object) -> Iterator[str]:
    if saved != now:
        yield f"{what} is {_word(now)} now, was {_word(saved)} then"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else str(value)


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
