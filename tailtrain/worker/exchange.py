"""What nodes exchange in an averaging and in a download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from tailtrain.worker.ledger import Contribution

SharedState = tuple[dict[str, Any], Sequence[Tensor]]
"""A node's committed state as peers download it: metadata of plain values, and tensors."""


@dataclass(frozen=True)
class Averaged:
    """The outcome of an averaging.

    Attributes:
        mean: weighted by tokens, the same to the bit on all members.
        group: what each member brought, by node name.
        moved_bytes: of weights, sent or received by this node, whichever is more.
    """

    mean: Tensor
    group: dict[str, Contribution]
    moved_bytes: int = 0
