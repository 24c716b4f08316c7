"""AdamW on one vector (Loshchilov and Hutter, arXiv 1711.05101), and the outer Nesterov step.

torch.optim is not used: constructing any optimiser of it imports torch's compiler, which takes seconds of a
small host's processor, and with all weights in one vector the update is five operations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tailtrain.errors import CheckpointError

if TYPE_CHECKING:
    from tailtrain.worker.config import TrainingConfig

_BETA1, _BETA2, _EPSILON = 0.9, 0.95, 1e-8
_CLIP_NORM = 1.0
_FINAL_RATE_SHARE = 0.1


class AdamW:
    """The inner optimiser of one node. Its state stays on the node (DiLoCo, arXiv 2311.08105).

    Attributes:
        step: updates done and not rolled back.
    """

    def __init__(self, values: Tensor, decayed: int, config: TrainingConfig) -> None:
        self._config, self._decayed = config, decayed
        self._first = torch.zeros_like(values)
        self._second = torch.zeros_like(values)
        self._scratch = torch.empty_like(values)
        self.step = 0

    def update(self, values: Tensor, gradients: Tensor, progress: float) -> None:
        """Change `values` by one step; `progress` is the share of the run's tokens that is done, 0 to 1."""
        self.step += 1
        norm = float(torch.linalg.vector_norm(gradients))
        if norm > _CLIP_NORM:
            gradients.mul_(_CLIP_NORM / norm)
        rate = self.learning_rate(progress)
        values[: self._decayed].mul_(1.0 - rate * self._config.weight_decay)
        self._first.lerp_(gradients, 1.0 - _BETA1)
        self._second.mul_(_BETA2).addcmul_(gradients, gradients, value=1.0 - _BETA2)
        torch.sqrt(self._second, out=self._scratch)
        self._scratch.div_(math.sqrt(1.0 - _BETA2**self.step)).add_(_EPSILON)
        values.addcdiv_(self._first, self._scratch, value=-rate / (1.0 - _BETA1**self.step))

    def learning_rate(self, progress: float) -> float:
        """Rises over the warm-up steps, then falls in a line to a tenth at the end of the run."""
        warmup = min(1.0, self.step / max(1, self._config.warmup_steps))
        decay = 1.0 - (1.0 - _FINAL_RATE_SHARE) * min(1.0, max(0.0, progress))
        return self._config.learning_rate * warmup * decay

    @property
    def vectors(self) -> tuple[Tensor, ...]:
        """All that it holds."""
        return self._first, self._second, self._scratch

    def reset(self) -> None:
        """Go back to the state before the first step."""
        self._first.zero_()
        self._second.zero_()
        self.step = 0

    def state(self) -> dict[str, Tensor]:
        """The moments on the host, not copied where they are there already; the caller keeps `step`."""
        return {"first": self._first.cpu(), "second": self._second.cpu()}

    def restore(self, state: dict[str, Tensor], step: int) -> None:
        """Go on from a saved state.

        Raises:
            CheckpointError: a moment is missing, of another size, or not finite.
        """
        for name, target in (("first", self._first), ("second", self._second)):
            saved = state.get(name)
            if saved is None or saved.shape != target.shape or not bool(torch.isfinite(saved).all()):
                raise CheckpointError("the optimiser's state does not fit this model", field=name)
            target.copy_(saved)
        self.step = step


def outer_step(base: Tensor, mean: Tensor, momentum: Tensor, *, rate: float, decay: float) -> Tensor:
    """The outer step of DiLoCo: SGD with Nesterov momentum on base - mean, the same on every node.

    With rate 1 and decay 0 the result is the mean itself, to the bit.

    Args:
        base: the weights that the round began with, the same on all nodes.
        mean: the weighted mean of the nodes' weights.
        momentum: the buffer; changed in place.
        rate: the outer learning rate.
        decay: the outer momentum, 0 to below 1.
    """
    if rate == 1.0 and decay == 0.0:
        return mean.clone()
    change = base - mean
    momentum.mul_(decay).add_(change)
    return base - rate * (change + decay * momentum)
