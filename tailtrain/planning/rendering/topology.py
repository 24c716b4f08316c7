"""What a plan's text says of its topology: what is expected of rounds, and of each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.rendering.text import columns, wrapped

if TYPE_CHECKING:
    from tailtrain.planning.documents.plan import PlanDocument


def topology(document: PlanDocument) -> list[str]:
    """What is expected of the training, where there is any to be done."""
    found = document.topology
    if found is None or all(action.key != "watch" for host in document.hosts for action in host.actions):
        return []
    lines = ["Topology, chosen for the least time per token" if found.chosen else "Topology, as declared"]
    for words in found.words:
        lines += wrapped(words, indent=2, hanging=4)
    if found.chosen:
        lines += columns([(host.name, host.work.words) for host in document.hosts if host.work])
    return lines
