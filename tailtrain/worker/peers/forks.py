"""What forked processes need not hold.

hivemind's processes are forks of the worker. A page that the worker writes to later is copied, and the fork
keeps the old one: with the model's vectors, which change with every step, each fork would hold them all.
"""

from __future__ import annotations

import gc
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor


def forget_in_forks(tensors: Iterable[Tensor]) -> None:
    """Give the memory of these tensors back in every process that is forked from now on, and only there."""
    os.register_at_fork(after_in_child=partial(_forget, [weakref.ref(tensor) for tensor in tensors]))


def keep_still() -> None:
    """Before a fork: let the garbage collector leave alone what is there, or it would write to every page."""
    gc.collect()
    gc.freeze()


def _forget(references: Sequence[weakref.ref[Tensor]]) -> None:
    for reference in references:
        tensor = reference()
        if tensor is None or tensor.is_cuda:
            continue
        storage = tensor.untyped_storage()
        if storage.resizable():
            storage.resize_(0)
        else:  # numpy has seen it, which keeps its size for good; this may be its only tensor
            tensor.data = tensor.new_empty(0)
