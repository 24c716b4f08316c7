"""The model: a small decoder-only transformer over bytes.

Pre-norm blocks (Xiong et al., arXiv 2002.04745) with RMSNorm (arXiv 1910.07467), causal attention, a GELU MLP
four times as wide, learned positions, and a head tied to the embedding (arXiv 1608.05859). The vocabulary is
the 256 byte values; byte 0 separates records.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from tailtrain.worker.config import ModelConfig

VOCABULARY = 256
SEPARATOR = 0
_INIT_STD = 0.02
_MLP_RATIO = 4


class _Norm(nn.Module):  # type: ignore[misc]  # torch is untyped where mypy runs
    """Scale to unit root mean square, then by a learned gain."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.gain, 1e-5)


class _Attention(nn.Module):  # type: ignore[misc]  # torch is untyped where mypy runs
    """Each position looks at itself and at what came before."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.project_in = nn.Linear(config.width, 3 * config.width, bias=False)
        self.project_out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = self.project_in(x).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project_out(mixed.transpose(1, 2).reshape(batch, length, width))


class _Block(nn.Module):  # type: ignore[misc]  # torch is untyped where mypy runs
    """Attention, then the MLP, each added to what came in."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = _Norm(config.width)
        self.attention = _Attention(config)
        self.mlp_norm = _Norm(config.width)
        self.widen = nn.Linear(config.width, _MLP_RATIO * config.width, bias=False)
        self.narrow = nn.Linear(_MLP_RATIO * config.width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.narrow(functional.gelu(self.widen(self.mlp_norm(x))))


class ByteTransformer(nn.Module):  # type: ignore[misc]  # torch is untyped where mypy runs
    """Bytes in (batch, length <= context), logits for each next byte out (batch, length, 256)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.final_norm = _Norm(config.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for the byte after each position."""
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.final_norm(x), self.embedding.weight)


def build_model(config: ModelConfig, seed: int) -> ByteTransformer:
    """A model with its first weights: the same on all nodes for the same seed.

    Matrices are drawn from N(0, 0.02); those that write into the residual stream are made smaller by
    sqrt(2 * layers), so that its variance does not grow with depth (GPT-2).
    """
    model = ByteTransformer(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
                continue
            writes_residual = name.endswith(("project_out.weight", "narrow.weight"))
            std = _INIT_STD / math.sqrt(2 * config.layers) if writes_residual else _INIT_STD
            parameter.normal_(0.0, std, generator=generator)
    return model


def next_byte_loss(model: nn.Module, window: Tensor, *, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats per byte for windows (batch, length + 1) of byte values."""
    logits = model(window[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten(), reduction=reduction)
