"""In what form the parts of a vector travel.

hivemind's own 8-bit classes are not used: version 1.1.12 cannot read what it wrote with numpy from 2.4 on,
and it draws 256 levels over a whole part, where one layer's values are lost beside another's. Here each block
of 1024 values has a scale of its own (as in Dettmers et al., arXiv 2110.02861).
"""

from __future__ import annotations

import numpy as np
import torch
from hivemind.compression import CompressionBase, CompressionInfo, Float16Compression, NoCompression
from hivemind.proto import runtime_pb2

from tailtrain.errors import PeerError

_BLOCK = 1024
_STEPS = 127
_SCALE_BYTES = 4
_PART_BYTES = (1 << 14, 1 << 19)
_PARTS = 32


class EightBits(CompressionBase):  # type: ignore[misc]  # hivemind is untyped
    """Whole numbers from -127 to 127 times a scale, of which there is one for each 1024 values.

    A value is off by at most 1/254 of the largest of its block.
    """

    compression_type = runtime_pb2.CompressionType.BLOCKWISE_8BIT

    def compress(
        self,
        tensor: torch.Tensor,
        info: CompressionInfo,  # noqa: ARG002 - hivemind's signature
        allow_inplace: bool = False,  # noqa: ARG002, FBT001, FBT002 - hivemind's signature
    ) -> runtime_pb2.Tensor:
        """The values as a message: all scales, then a byte for each value."""
        values = tensor.detach().reshape(-1)
        blocks = torch.nn.functional.pad(values, (0, -len(values) % _BLOCK)).view(-1, _BLOCK)
        scales = blocks.abs().amax(dim=1) / _STEPS
        whole = (blocks / torch.where(scales > 0, scales, 1.0).unsqueeze(1)).round_().clamp_(-_STEPS, _STEPS)
        steps = whole.to(torch.int8).view(-1)[: len(values)]
        return runtime_pb2.Tensor(
            compression=self.compression_type,
            buffer=scales.numpy().astype("<f4").tobytes() + steps.numpy().tobytes(),
            size=tensor.shape,
            dtype="float32",
        )

    def extract(self, serialized_tensor: runtime_pb2.Tensor) -> torch.Tensor:
        """The values in such a message."""
        size = tuple(serialized_tensor.size)
        count = int(np.prod(size))
        blocks = -(-count // _BLOCK)
        scales = np.frombuffer(serialized_tensor.buffer, "<f4", blocks)
        steps = np.frombuffer(serialized_tensor.buffer, np.int8, offset=blocks * _SCALE_BYTES)
        values = steps.astype(np.float32) * np.repeat(scales, _BLOCK)[:count]
        return torch.from_numpy(values).view(size)

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:  # noqa: ARG002 - hivemind's signature
        """Bytes sent per byte of float32."""
        return (1 + _SCALE_BYTES / _BLOCK) / 4


_FORMS: dict[str, CompressionBase] = {
    "none": NoCompression(),
    "fp16": Float16Compression(),
    "8-bit": EightBits(),
}


def form_of(compression: str, *, differences: bool) -> CompressionBase:
    """How values travel.

    Args:
        compression: as configured: none, fp16 or 8-bit.
        differences: whether they are differences from weights that all members hold. Whole weights take fp16
            at least: in 8 bits, what a round changes would be rounded away.
    """
    return _FORMS["fp16" if compression == "8-bit" and not differences else compression]


def part_bytes(values: int, form: CompressionBase) -> int:
    """Of how many bytes, as sent, a vector's parts are: small enough that every reducer has its share."""
    whole = values * 4 * form.estimate_compression_ratio(CompressionInfo.from_tensor(torch.zeros(1)))
    low, high = _PART_BYTES
    return min(high, max(low, int(whole / _PARTS)))


def pack(part: torch.Tensor, form: CompressionBase) -> runtime_pb2.Tensor:
    """A part as a message."""
    return form.compress(part, CompressionInfo.from_tensor(part))


def unpack(message: runtime_pb2.Tensor, form: CompressionBase, shape: torch.Size) -> torch.Tensor:
    """The part in a message.

    Raises:
        PeerError: it is of another form, size or type than it has to be.
    """
    if message.compression != form.compression_type or tuple(message.size) != tuple(shape):
        raise PeerError(
            "a part is of another form or size", found=str(tuple(message.size)), expected=str(tuple(shape))
        )
    try:
        part: torch.Tensor = form.extract(message).detach()
    except Exception as error:  # numpy and torch raise several classes on bytes that do not fit
        raise PeerError("a part cannot be read", found=repr(error)[:80]) from error
    if part.dtype != torch.float32 or part.shape != shape:
        raise PeerError("a part is of another type", found=str(part.dtype), expected="float32")
    return part
