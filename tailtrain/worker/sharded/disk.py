"""A disk that takes no more: said in one line that names host and disk."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

from tailtrain.errors import WorkerError

if TYPE_CHECKING:
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.sharded.config import ShardedConfig

_MIB = 1 << 20
_FIX = "Free room there; the worker then goes on by itself, from the newest checkpoint"
_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})


def is_of_the_disk(error: OSError) -> bool:
    """Whether it is the disk that is full, read-only or broken."""
    return error.errno in _OF_THE_DISK


def disk_error(worker: WorkerConfig, error: OSError) -> WorkerError:
    """What the disk said, with host, path and room."""
    return WorkerError(
        "the disk does not take what is to be written",
        host=worker.node,
        field=str(error.filename or worker.run_dir),
        found=f"{error.strerror}; {_free(worker) // _MIB} MiB free",
        fix=_FIX,
    )


def has_room(config: ShardedConfig) -> bool:
    """Whether one more checkpoint fits: a node where none does trains, and writes none."""
    return _free(config.worker) >= config.checkpoint_bytes


def require_room(config: ShardedConfig) -> None:
    """See that one more checkpoint fits on the primary: the final model is made there.

    One that ran out of room is started again by systemd: without this it would join the others, lose their
    interval and its own, and so on for ever.

    Raises:
        WorkerError: it does not fit.
    """
    worker = config.worker
    free, needed = _free(worker), config.checkpoint_bytes
    if free < needed:
        raise WorkerError(
            "the disk has no room for a checkpoint",
            host=worker.node,
            field=str(worker.run_dir),
            found=f"{free // _MIB} MiB free",
            expected=f"{-(-needed // _MIB)} MiB",
            fix=_FIX,
        )


def _free(worker: WorkerConfig) -> int:
    """Bytes that are free where the run is kept."""
    path = worker.run_dir
    while not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where a folder may not be entered
        path = path.parent
    return shutil.disk_usage(path).free
