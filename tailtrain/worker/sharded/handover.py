"""The checkpoint of the run's end, from a node that has it to the primary that was away then.

One connection to the port of the rendezvous, which is over: a line of JSON with the checkpoint's name and its
files' sizes, then the files. What arrives counts when it is what its own hashes say.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailtrain.errors import CheckpointError
from tailtrain.worker.files import canonical_json, sync_directory
from tailtrain.worker.sharded.checkpoints import NAME, STATE, read_checkpoint, remove_halves
from tailtrain.worker.sharded.files import OPTIMIZER, WEIGHTS
from tailtrain.worker.sharded.network import listen_on
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.worker.sharded.config import ShardedConfig

_FILES = (STATE, WEIGHTS, OPTIMIZER)
_TIMEOUT_SECONDS = 30.0
_AGAIN_SECONDS = 0.2
_PART = 1 << 20
_LONGEST_LINE = 4096


class Giver:
    """Gives the finished checkpoint to whoever asks, until closed.

    Args:
        config: this node's configuration.
        checkpoint: its folder.

    Raises:
        WorkerError: this node cannot listen there.
    """

    def __init__(self, config: ShardedConfig, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._closed = threading.Event()
        self._socket = listen_on(config.address, config.port)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Give no more."""
        self._closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                self._closed.wait(_AGAIN_SECONDS)
                continue
            try:
                with connection:
                    connection.settimeout(_TIMEOUT_SECONDS)
                    self._give(connection)
            except OSError as error:
                log(f"could not give the finished checkpoint: {error}")

    def _give(self, connection: socket.socket) -> None:
        sizes = {name: (self._checkpoint / name).stat().st_size for name in _FILES}
        connection.sendall(canonical_json({"name": self._checkpoint.name, "sizes": sizes}))
        for name in _FILES:
            with (self._checkpoint / name).open("rb") as file:
                while part := file.read(_PART):
                    connection.sendall(part)


def take(config: ShardedConfig, node: str) -> None:
    """Take the finished checkpoint from a node that gives it.

    Raises:
        OSError: the node gives nothing or is gone, or the disk here takes no more.
        CheckpointError: what came is not the finished checkpoint of this run.
    """
    directory = config.worker.run_dir / "checkpoints"
    directory.mkdir(parents=True, exist_ok=True)
    remove_halves(directory)
    temporary = directory / f".round-taken.{os.getpid()}"
    temporary.mkdir(mode=0o750)
    try:
        with socket.create_connection((config.address_of(node), config.port), _TIMEOUT_SECONDS) as asked:
            incoming = asked.makefile("rb")
            name, sizes = _announced(incoming.readline(_LONGEST_LINE), node)
            for file in _FILES:
                _receive(incoming, temporary / file, sizes[file])
        if not read_checkpoint(temporary, config.worker.run_id).finished:
            raise CheckpointError("a checkpoint that is not the run's last was given", host=node, field=name)
        shutil.rmtree(directory / name, ignore_errors=True)
        temporary.rename(directory / name)
        sync_directory(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _announced(line: bytes, node: str) -> tuple[str, dict[str, int]]:
    """The checkpoint's name and its files' sizes."""
    try:
        said = json.loads(line)
        name, sizes = str(said["name"]), {file: int(said["sizes"][file]) for file in _FILES}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError("what it gives is no checkpoint", host=node, found=repr(error)) from error
    if not NAME.fullmatch(name) or min(sizes.values()) < 1:
        raise CheckpointError("what it gives is no checkpoint", host=node, found=f"{name}, {sizes}")
    return name, sizes


def _receive(incoming: Any, path: Path, size: int) -> None:
    with path.open("wb") as file:
        # A disk without room says so before anything has travelled.
        os.posix_fallocate(file.fileno(), 0, size)
        while size:
            part = incoming.read(min(size, _PART))
            if not part:
                raise ConnectionError("the connection ended before the checkpoint did")
            file.write(part)
            size -= len(part)
        file.flush()
        os.fsync(file.fileno())
