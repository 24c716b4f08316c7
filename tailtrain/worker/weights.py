"""All weights of a model as one vector.

One vector makes averaging, digests, checkpoints and the optimiser's update each a single operation, and
matrices come first in it, so that weight decay applies to one slice. The model's parameters are views of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor, nn

from tailtrain.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping


class FlatWeights:
    """The parameters and gradients of a model, each as one vector that the model's tensors are views of.

    Attributes:
        values: all parameters, float32, on the model's device.
        gradients: all gradients, of the same shape; backward passes add to it.
        decayed: how many of the first values are matrices (weight decay applies to those).
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        named = sorted(model.named_parameters(), key=lambda item: (item[1].dim() == 1, item[0]))
        self._shapes = {name: parameter.shape for name, parameter in named}
        self.decayed = sum(parameter.numel() for _, parameter in named if parameter.dim() > 1)
        self.values = torch.cat([parameter.detach().reshape(-1) for _, parameter in named]).to(device)
        self.gradients = torch.zeros_like(self.values)
        views, gradients = self.views(self.values), self.views(self.gradients)
        for name, parameter in named:
            parameter.data = views[name]
            parameter.grad = gradients[name]

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector of this layout as named tensors that share its memory."""
        parts = vector.split([shape.numel() for shape in self._shapes.values()])
        return {
            name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def to_bytes(self, vector: Tensor) -> bytes:
        """A vector of this layout as a safetensors file with the model's parameter names."""
        host = vector.detach().cpu()
        return to_safetensors({name: part.contiguous() for name, part in self.views(host).items()})

    def from_bytes(self, content: bytes) -> Tensor:
        """The vector in such a file.

        Raises:
            CheckpointError: names or shapes are not this model's, or a value is not finite.
        """
        tensors = read_tensors(content)
        if {name: tensor.shape for name, tensor in tensors.items()} != self._shapes:
            raise CheckpointError(
                "the weights are of another model", fix="Use the configuration they were made with"
            )
        vector = torch.cat([tensors[name].reshape(-1).float() for name in self._shapes])
        if not is_finite(vector):
            raise CheckpointError("the weights contain values that are not finite")
        return vector


def to_safetensors(tensors: dict[str, Tensor]) -> bytes:
    """The tensors as a safetensors file."""
    return bytes(save_safetensors(tensors))


def read_tensors(content: bytes) -> Mapping[str, Tensor]:
    """The tensors of a safetensors file; CheckpointError if it is damaged.

    safetensors is plain numbers behind a JSON header. Nothing in this package reads pickled data: torch.load
    is not used anywhere.
    """
    try:
        return load_safetensors(content)  # type: ignore[no-any-return]  # safetensors is untyped
    except Exception as error:  # its Rust side raises its own class and several built-in ones
        raise CheckpointError("this is not a safetensors file", found=str(error)) from error


def is_finite(vector: Tensor) -> bool:
    """Whether every value is a number: a sum is infinite or NaN as soon as one term is."""
    return bool(torch.isfinite(vector.sum(dtype=torch.float64)))


def weights_sha256(vector: Tensor) -> str:
    """SHA-256 of the values as little-endian float32 in this module's order: equal on nodes that agree."""
    return hashlib.sha256(vector.detach().cpu().numpy().astype("<f4", copy=False)).hexdigest()
