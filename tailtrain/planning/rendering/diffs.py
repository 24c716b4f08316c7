"""How text files will change: hunks with secrets masked, shared by the hosts where they are the same."""

from __future__ import annotations

import difflib
import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from tailtrain.planning.documents.plan import Diff
from tailtrain.planning.secrets import MaskedLine, masked_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.planning.parts import FileChange
    from tailtrain.planning.plan import HostPlan

Hunk = tuple[str, ...]
"""The lines of a hunk, its heading first."""


def is_binary(text: str) -> bool:
    """Whether a file's content is no text that could be shown: it has zeros, or cannot be encoded."""
    return "\0" in text or (not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text))


def size_and_sha256(text: str | None) -> tuple[int, str] | tuple[None, None]:
    """A file's size in bytes and its SHA-256; nothing of a file that is not there."""
    if text is None:
        return None, None
    content = text.encode(errors="surrogatepass")
    return len(content), hashlib.sha256(content).hexdigest()


def folded_diffs(hosts: Sequence[HostPlan]) -> tuple[Diff, ...]:
    """What changes in text files: hosts that change the same lines in the same way share the hunk."""
    sharing: dict[tuple[str, bool, Hunk], list[str]] = defaultdict(list)
    for host in hosts:
        for change in host.files:
            if not is_binary((change.before or "") + change.after):
                for hunk in hunks(change):
                    sharing[change.path, change.before is None, hunk].append(host.node.hostname)
    together: dict[tuple[str, bool, tuple[str, ...]], list[Hunk]] = defaultdict(list)
    for (path, new, hunk), names in sharing.items():
        together[path, new, tuple(names)].append(hunk)
    return tuple(
        Diff(
            path=path,
            hosts=names,
            before="no such file" if new else "on the host",
            hunks=tuple(their_hunks),
        )
        for (path, new, names), their_hunks in together.items()
    )


def hunks(change: FileChange) -> Iterator[Hunk]:
    """The hunks of a unified diff without context, secrets masked.

    Lines are compared as they are and masked afterwards, so that a changed secret shows as changed.
    """
    before = [] if change.before is None else change.before.split("\n")
    after = change.after.split("\n")
    old, new = masked_lines(change.before or ""), masked_lines(change.after)
    if change.before is None:
        yield _hunk(old[:0], new, 0, 0)
        return
    for tag, i, i_stop, j, j_stop in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if tag != "equal":
            yield _hunk(old[i:i_stop], new[j:j_stop], i, j)


def _hunk(old: Sequence[MaskedLine], new: Sequence[MaskedLine], i: int, j: int) -> Hunk:
    was, now = _by_name(old), _by_name(new)
    return (
        f"@@ -{_range(i, len(old))} +{_range(j, len(new))} @@",
        *(f"-{line}" for line in _marked(old, now, "")),
        *(f"+{line}" for line in _marked(new, was, " (changed)")),
    )


def _range(start: int, lines: int) -> str:
    """A range as unified diffs have it: an empty one names the line before it."""
    return f"{start + 1}" if lines == 1 else f"{start + bool(lines)},{lines}"


def _by_name(lines: Sequence[MaskedLine]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        for name, value in line.secrets:
            values[name].append(value)
    return values


def _marked(lines: Sequence[MaskedLine], others: dict[str, list[str]], changed: str) -> Iterator[str]:
    """Lines with their secrets masked: the same, or another, than the one of the same name and place."""
    place: dict[str, int] = defaultdict(int)
    for line in lines:
        marks = []
        for name, value in line.secrets:
            counterparts, at = others.get(name, []), place[name]
            place[name] += 1
            same = at < len(counterparts) and counterparts[at] == value
            marks.append(" (same)" if same else changed if at < len(counterparts) else "")
        yield line.shown(tuple(marks))
