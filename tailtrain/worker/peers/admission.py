"""What a node sends when it asks to take part in an averaging, and what the others accept.

With its contribution a node says how long its vectors are: the norm of its weights, and of what it changed
since the weights that it began from. The receiver holds both against its own, and later the parts that arrive
against what was said. That finds a broken node, whose numbers have run away or are no numbers. It is no
defence against one that means harm and stays within bounds.

**The bounds.** For a receiver with weights of norm W that trained T tokens and changed its weights by U,
another's

- change, for t tokens, is at most the larger of 10 U max(1, t / T) and the reach of the optimizer, which is
  2.4 R N^1/2 (s + 4) for learning rate R, N weights and s = t / (batch x context) steps, times the rounds
  since all averaged together at most: AdamW moves a weight by at most 1.17 R a step (Kingma and Ba, arXiv
  1412.6980, section 2.1, for betas of 0.9 and 0.95 with Cauchy-Schwarz over the steps); doubled for weight
  decay and for steps with less than a batch;
- weights are at most 10 W plus that.

Ten times is more than weights grow between any two nodes of a run that are in the same round. The optimizer's
reach is there for a receiver that is slow, or trained nothing: it must not turn away whoever works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tailtrain.errors import PeerError
from tailtrain.worker.ledger import Contribution, Fields, read_contribution

if TYPE_CHECKING:
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.reading.shards import Shards

_TIMES = 10.0
_STEP_REACH = 2.4
_SPARE_STEPS = 4
_BLOCK = 1 << 20
_NO_TOKENS_WEIGHT = (
    1e-6  # an averaging wants a positive weight; beside whole tokens it changes no float32 bit
)


@dataclass(frozen=True)
class Norms:
    """Euclidean norms of a node's weights, and of their distance from those that it began with."""

    weights: float
    change: float

    @classmethod
    def of(cls, weights: torch.Tensor, base: torch.Tensor) -> Norms:
        """Measured, without a copy of either."""
        squares = (
            float(torch.linalg.vector_norm(present - past)) ** 2
            for present, past in zip(weights.split(_BLOCK), base.split(_BLOCK), strict=True)
        )
        return cls(float(torch.linalg.vector_norm(weights)), math.sqrt(sum(squares)))


@dataclass(frozen=True)
class Bounds:
    """What a node accepts from others, by what it has itself.

    Attributes:
        own: its norms.
        tokens: what it trained on since its base.
        batch_tokens: tokens of a step.
        step_reach: the norm by which a step of each round since the base can change the weights at most.
    """

    own: Norms
    tokens: int
    batch_tokens: int
    step_reach: float

    @classmethod
    def of(cls, config: WorkerConfig, own: Norms, work: Contribution, weights: int) -> Bounds:
        """This node's, with its work in a run of so many weights."""
        training = config.training
        rounds = config.coordination.all_each or work.round + 1
        return cls(
            own,
            work.tokens,
            training.batch_size * config.model.context,
            _STEP_REACH * training.learning_rate * math.sqrt(weights) * rounds,
        )

    def most_change(self, tokens: int) -> float:
        """The norm of a change that is acceptable from a node that trained on so many tokens."""
        steps = tokens / self.batch_tokens + _SPARE_STEPS
        more = max(1.0, tokens / self.tokens) if self.tokens else 1.0
        return max(_TIMES * self.own.change * more, self.step_reach * steps)

    def check(self, said: Norms, tokens: int, who: str) -> None:
        """PeerError if another's norms are not acceptable."""
        most = self.most_change(tokens)
        for what, found, limit in (
            ("the norm of its change", said.change, most),
            ("the norm of its weights", said.weights, _TIMES * self.own.weights + most),
        ):
            if not found <= limit:  # not a number is refused too
                raise PeerError(
                    "a node's weights are out of all proportion",
                    host=who,
                    field=what,
                    found=f"{found:.4g}",
                    expected=f"at most {limit:.4g}",
                )


@dataclass(frozen=True)
class Request:
    """What a node sends when it asks to take part.

    Attributes:
        contribution: its work.
        norms: of its vectors.
        has_base: whether it holds the weights that `contribution.base` is the digest of, and can send
            differences from them.
        refuses: nodes that it does not average with in this round, because of what they sent.
    """

    contribution: Contribution
    norms: Norms
    has_base: bool
    refuses: frozenset[str]

    @property
    def weight(self) -> float:
        """Its weight in the mean: the tokens that it trained on."""
        return float(self.contribution.tokens) or _NO_TOKENS_WEIGHT

    def to_message(self, shards: Shards) -> dict[str, Any]:
        """As sent (plain values only), without the stamp."""
        return {
            "weights_norm": self.norms.weights,
            "change_norm": self.norms.change,
            "has_base": self.has_base,
            "refuses": sorted(self.refuses),
            "work": self.contribution.to_message(shards),
        }


def read_request(raw: Any, shards: Shards, who: str) -> Request:
    """Check and read what a node sends; its stamp is off already.

    Raises:
        PeerError: a field is missing, unknown, of the wrong type, out of range or not finite, or the node is
            not of this run.
    """
    if not isinstance(raw, dict):
        raise PeerError("a message is not a set of fields", host=who, found=repr(raw)[:80])
    fields = Fields(raw, who)
    norms = Norms(fields.number("weights_norm"), fields.number("change_norm"))
    has_base, refuses = fields.take("has_base"), fields.take("refuses")
    if not isinstance(has_base, bool):
        raise PeerError("a peer's message is not acceptable", host=who, field="has_base")
    if not isinstance(refuses, list) or not all(isinstance(n, str) and n in shards.nodes for n in refuses):
        raise PeerError("a peer's message is not acceptable", host=who, field="refuses")
    work = fields.take("work")
    fields.end()
    return Request(read_contribution(work, shards), norms, has_base, frozenset(refuses))
