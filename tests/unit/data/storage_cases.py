"""What the storage tests share: packs, remotes that lead to stand-ins, and reading back as nodes do."""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tailtrain.data.backends.find import find_remote
from tailtrain.data.backends.program import find_program
from tailtrain.data.backends.remote import node_flags
from tailtrain.data.packs import packs_of, places_of
from tailtrain.data.pull import REMOTE, Puller
from tailtrain.data.pull_backend import RcloneRemote
from tailtrain.errors import DataError
from tailtrain.planning.layout import STORAGE_CA
from tailtrain.planning.storage_settings import StorageSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailtrain.data.backends.remote import Remote
    from tailtrain.data.packs import Pack
    from tailtrain.spec import StorageBackend

RCLONE = find_program(os.environ)


def make_packs(folder: Path, packs: int, size: int, chunks: int = 3) -> tuple[Pack, ...]:
    """Write chunks of some size into a folder, so many to a pack, and give the packs."""
    folder.mkdir(exist_ok=True)
    made: list[Pack] = []
    for number in range(packs):
        names = []
        for part in range(chunks):
            content = random.Random(f"{number} {part} {size}").randbytes(size // chunks)  # noqa: S311  # no secret
            name = hashlib.sha256(content).hexdigest()
            (folder / name).write_bytes(content)
            names.append((name, len(content)))
        made += packs_of(names)
    return tuple(made)


def variables(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """The environment in which rclone knows a remote."""
    return {f"RCLONE_CONFIG_{name}_{option}".upper(): value for option, value in options.items()}


def remote_at(
    backend: StorageBackend, options: Mapping[str, str], folder: str, tmp_path: Path, **settings: str
) -> Remote:
    """The remote `fleet` with these options, found as a deploy finds it."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | variables("fleet", options)
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    return find_remote(
        backend, StorageSettings(f"fleet:{folder}", **settings), project=project, environ=environ
    )


def damaged(remote: Remote, packs: Sequence[Pack], tmp_path: Path) -> list[str]:
    """Names of packs of which a node does not get every chunk, with what a deploy gives it."""
    config = tmp_path / "storage.conf"
    config.touch(mode=0o600)
    config.write_text(remote.node_config())
    flags = tuple(str(remote.ca_certificate) if flag == STORAGE_CA else flag for flag in node_flags(remote))
    backend = RcloneRemote(remote.path, str(config), flags)
    with (
        TemporaryDirectory() as folder,
        closing(Puller(folder, {}, backend, RCLONE, places_of(packs))) as puller,
    ):
        return [pack.name for pack in packs if not _all_arrive(puller, pack)]


def _all_arrive(puller: Puller, pack: Pack) -> bool:
    try:
        for sha256, size in pack.chunks:
            puller.fetch(sha256, size, [REMOTE])
    except DataError:
        return False
    return True
