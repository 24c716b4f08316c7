"""How much memory a worker needs for a model, known before anything is sent anywhere.

With P the model's parameters, L layers, W its width, and B windows of T bytes in a batch:

    320 MiB                         Python, torch and hivemind's processes
    18.5 x 4 P bytes                at the fullest moment of a round: weights, gradients, two moments and room
                                    for the update; the last commit; what is averaged, in the trainer and in
                                    hivemind's process; a checkpoint that is being written
    4.5 x 4 P bytes                 where there is an outer step: its momentum, and room for the step
    4 B T (W (22 L + 8) + 3 x 256)  what a backward pass needs of the forward pass, and the logits

P is 256 W for the bytes, T W for the positions, 12 W^2 + 2 W a layer, and W for the last norm. Attention adds
nothing that grows with T^2: torch computes it in blocks. The figures are measured, not guessed: anonymous and
shared memory of all of a worker's processes, at its fullest, on CPUs, with two and three peers and both
protocols. Of nine models from 0.3 to 3 GiB, none is off by more than 11 %.

On a GPU a batch and the optimiser are in the GPU's own memory, of which the plan knows nothing; the rest is
counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError

if TYPE_CHECKING:
    from tailtrain.planning.settings import LoopSettings, ModelSettings

VOCABULARY = 256
_FLOAT_BYTES = 4
_BASE_BYTES = 320 << 20
_COPIES, _OUTER_COPIES, _COPIES_ON_GPU = 18.5, 4.5, 5.0
_SAVED_IN_A_LAYER, _SAVED_AT_ONCE, _LOGITS = 22, 8, 3
_GIB = 2**30


def parameters(model: ModelSettings) -> int:
    """How many parameters a model has."""
    width = model.width
    return (VOCABULARY + model.context + 1) * width + model.layers * (12 * width + 2) * width


def memory_needed(model: ModelSettings, loop: LoopSettings, *, device: str = "cpu") -> int:
    """Bytes that a worker needs at its fullest moment (see the module's formula).

    Args:
        model: its sizes.
        loop: the training: batch size, and whether there is an outer step.
        device: `cpu` or `cuda`.
    """
    copies = _COPIES
    if (loop.outer_learning_rate, loop.outer_momentum) != (1.0, 0.0):
        copies += _OUTER_COPIES
    activations = loop.batch_size * model.context
    activations *= model.width * (_SAVED_IN_A_LAYER * model.layers + _SAVED_AT_ONCE) + _LOGITS * VOCABULARY
    if device != "cpu":
        copies, activations = copies - _COPIES_ON_GPU, 0
    return _BASE_BYTES + int(_FLOAT_BYTES * (copies * parameters(model) + activations))


def require_memory(
    host: str, memory_bytes: int, model: ModelSettings, loop: LoopSettings, *, device: str = "cpu"
) -> None:
    """Refuse a model that does not fit.

    Args:
        host: whom the error names.
        memory_bytes: what the worker may use there.
        model: as for `memory_needed`.
        loop: as for `memory_needed`.
        device: as for `memory_needed`.

    Raises:
        DeclarationError: naming the host, with what it has and what is needed.
    """
    needed = memory_needed(model, loop, device=device)
    if needed > memory_bytes:
        raise DeclarationError(
            "its memory cannot hold the training",
            host=host,
            field="ram_gb",
            found=f"{memory_bytes / _GIB:.1f} GiB for it",
            expected=f"{needed / _GIB:.1f} GiB: {parameters(model):,} parameters, batches of "
            f"{loop.batch_size} x {model.context} bytes",
            fix="Make model or batch_size smaller in group_data/all.py, or leave the host out",
        )
