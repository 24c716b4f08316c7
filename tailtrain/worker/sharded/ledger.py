"""Who trained what: each token passes all nodes, and counts for them by the work of their layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailtrain.worker.ledger import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.worker.sharded.checkpoints import State
    from tailtrain.worker.sharded.members import Share


def credit(
    ledger: Mapping[str, Entry], shares: Mapping[str, Share], tokens: int, records: int
) -> dict[str, Entry]:
    """The ledger with tokens and records added, in whole numbers that sum to exactly these."""
    work = [share.work for share in shares.values()]
    result = dict(ledger)
    for node, more, completed in zip(shares, divided(tokens, work), divided(records, work), strict=True):
        before = result.get(node, Entry())
        result[node] = Entry(before.tokens + more, before.records + completed, before.rounds + 1)
    return result


def divided(total: int, weights: Sequence[float]) -> list[int]:
    """A total in whole parts, in proportion to weights, by the largest remainder."""
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    parts = [int(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: parts[index] - exact[index])
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return parts


def told_of(state: State, node: str) -> dict[str, Any]:
    """What the status says of a committed state."""
    own = state.ledger.get(node)
    return {
        "tokens": own.tokens if own else 0,
        "records": own.records if own else 0,
        "total_tokens": total_of(state),
        "weights_sha256": state.weights_sha256 or None,
    }


def total_of(state: State) -> int:
    """Tokens that the fleet has committed."""
    return sum(entry.tokens for entry in state.ledger.values())
