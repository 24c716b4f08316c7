"""How evenly a run's work was spread: who waited for whom, and whose work did not follow what it can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.planning.guarantees import RunRecord

_LEAST_HEALTH = 0.01


def idle_shares(record: RunRecord) -> dict[str, float]:
    """For each node, how much less it trained than it should have, beside the longest trainer of its rounds.

    A node of half the others' health is to train half as long. Where the model is divided, all train for the
    same time, in which they wait for each other: there the time counts in which a node computed. The round
    in which a node joins is left out: it was not there for all of it.
    """
    own: dict[str, float] = {}
    due_of: dict[str, float] = {}
    before: set[str] = set()
    for entry in record.rounds:
        group = entry["group"]
        members = {member["node"] for member in group}
        longest = max((member["train_seconds"] for member in group), default=0.0)
        best = max(map(health_of, group), default=1.0)
        for member in group:
            if member["node"] in before:
                seconds = member.get("busy_seconds", member["train_seconds"])
                own[member["node"]] = own.get(member["node"], 0.0) + seconds
                due = longest * health_of(member) / best
                due_of[member["node"]] = due_of.get(member["node"], 0.0) + due
        before = members
    return {node: max(0.0, 1 - own[node] / due_of[node]) for node in own if due_of[node] > 0}


def imbalances(record: RunRecord) -> dict[str, float]:
    """For each node, how far its share of the tokens is from its share of speed x health, in its rounds."""
    off: dict[str, float] = {}
    trained: dict[str, float] = {}
    for entry in record.rounds:
        group = entry["group"]
        tokens = sum(member["tokens"] for member in group)
        able = sum(member["tokens_per_second"] * health_of(member) for member in group)
        for member in group:
            node = member["node"]
            due = tokens * member["tokens_per_second"] * health_of(member) / able if able else 0.0
            off[node] = off.get(node, 0.0) + member["tokens"] - due
            trained[node] = trained.get(node, 0.0) + tokens
    return {node: abs(off[node]) / trained[node] for node in off if trained[node] > 0}


def health_of(member: Mapping[str, Any]) -> float:
    """A node's health in a round, above 0 for whoever worked in it; 1 where work does not go by health."""
    return max(float(member.get("health", 1.0)), _LEAST_HEALTH)
