"""Bringing packs to a storage backend: built beside, sent, checked by its hash, removed."""

from __future__ import annotations

import hashlib
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tailtrain.data.backends.listing import COPIES_DIFFER, has_folder, list_packs, require_single_folders
from tailtrain.data.backends.program import run
from tailtrain.errors import DataError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from tailtrain.data.backends.remote import Remote
    from tailtrain.data.packs import Pack

AT_A_TIME = 4
"""How many packs are on their way at a time; as many more are being built, so at most 8 x 256 MiB of disk."""

_BUILDING = "packs-to-upload"
_BLOCK = 1 << 20
_SEEN_SECONDS, _LOOK_SECONDS = 60.0, 1.0
# Few tries of a call where S3 doubles its pauses (7 s, 23 s, 51 s ...), rclone's own number where Drive slows
# down whoever calls too often; and the whole file once more after that.
_TRIES = {False: ("--low-level-retries=3", "--retries=2"), True: ("--low-level-retries=10", "--retries=3")}
_FLAGS = (
    f"--transfers={AT_A_TIME}",
    "--retries-sleep=2s",
    "--no-traverse",  # asks for these few names, instead of listing thousands
    "--drive-chunk-size=16Mi",  # pieces of 8 MiB, the default, spend much of their time on answers
)

# Seconds without a byte: rclone waits this long, and longer, where Drive says that it is too much.
_PATIENCE = 300.0


@dataclass(frozen=True)
class Uploaded:
    """What an upload has sent: packs, bytes, and the seconds that it took."""

    packs: int
    bytes: int
    seconds: float


def upload(
    remote: Remote,
    packs: Sequence[Pack],
    chunk_dir: Path,
    work_dir: Path,
    *,
    progress: Callable[[int, int], None] | None = None,
    replace: bool = False,
) -> Uploaded:
    """Send the packs that the backend does not have, or not with their size.

    Killed at any time and run again, it sends only what is missing. Every chunk is hashed on its way into a
    pack, and the backend's own hash of what arrived is compared with ours (by rclone; MD5).

    Args:
        remote: where to.
        packs: all that should be there.
        chunk_dir: has the chunks, by their SHA-256.
        work_dir: where packs are built; what an upload before left there is removed.
        progress: called with the bytes sent so far and the bytes to send.
        replace: send all of them, also those that are there with the right size: they are damaged.

    Raises:
        StorageError: the backend does not take them.
        DataError: a chunk is missing or damaged here, or there is no room to build packs.
    """
    begun = time.monotonic()
    listing = list_packs(remote)
    wanted = tuple(packs) if replace else listing.missing(packs)
    total = sum(pack.size for pack in wanted)
    if listing.free_bytes is not None and total > listing.free_bytes:
        raise StorageError(
            "Google Drive has too little room",
            field=remote.path,
            found=f"{listing.free_bytes:,} bytes free",
            expected=f"{total:,} bytes for {len(wanted)} packs",
            fix=f"Make room (rclone cleanup {remote.name}: empties the bin)",
        )
    if wanted and remote.on_drive and not listing.packs:
        _make_folder(remote)
    sent = 0
    with _workshop(work_dir) as folder, closing(_built(wanted, chunk_dir, folder)) as batches:
        for batch, built in batches:
            # Sending a name again changes one of its copies; so where there are several, all go first.
            doubled = [
                pack
                for pack in batch
                if (replace and pack.name in listing.duplicates)
                or listing.packs.get(pack.name) == COPIES_DIFFER
            ]
            if doubled:
                run(remote, ("delete", remote.packs_path, *(f"--include=/{pack.name}" for pack in doubled)))
            again = ("--ignore-times",) if replace else ()
            run(
                remote,
                ("copy", str(built), remote.packs_path, *_FLAGS, *_TRIES[remote.on_drive], *again),
                progress=partial(_tell, progress, sent, total) if progress else None,
                patience=_PATIENCE,
            )
            shutil.rmtree(built)
            sent += sum(pack.size for pack in batch)
    if progress:
        progress(total, total)
    return Uploaded(len(wanted), sent, time.monotonic() - begun)


def _tell(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    # What rclone counts includes what it sends twice.
    progress(min(before + done, total), total)


def _make_folder(remote: Remote) -> None:
    """Make the folder of packs on a Drive, once: who does not see one makes another of the same name.

    Folders that were just made may be missing in listings for a while; and where the answer to making one is
    lost, rclone makes it again.

    Raises:
        StorageError: it is there twice now, or not seen after a minute.
    """
    run(remote, ("mkdir", remote.packs_path))
    end = time.monotonic() + _SEEN_SECONDS
    while not has_folder(remote):
        require_single_folders(remote)
        if time.monotonic() > end:
            raise StorageError(
                "Google Drive does not show a folder that was made a minute ago",
                field=remote.packs_path,
                fix="Run it again, in some minutes",
            )
        time.sleep(_LOOK_SECONDS)
    require_single_folders(remote)


@contextmanager
def _workshop(work_dir: Path) -> Iterator[Path]:
    """An empty folder for packs, for as long as the block runs."""
    folder = work_dir / _BUILDING
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        yield folder
    except OSError as error:
        raise DataError("packs cannot be built there", field=str(folder), found=error.strerror) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _built(packs: Sequence[Pack], chunk_dir: Path, folder: Path) -> Generator[tuple[Sequence[Pack], Path]]:
    """Batches of packs, each built in a folder of its own while the one before is on its way."""
    batches = [packs[first : first + AT_A_TIME] for first in range(0, len(packs), AT_A_TIME)]
    with ThreadPoolExecutor(max_workers=1) as builder:
        coming: Future[Path] | None = None
        for number, batch in enumerate(batches):
            built = (coming or builder.submit(_build, batch, chunk_dir, folder / f"{number}")).result()
            coming = None
            if number + 1 < len(batches):
                coming = builder.submit(_build, batches[number + 1], chunk_dir, folder / f"{number + 1}")
            yield batch, built


def _build(packs: Sequence[Pack], chunk_dir: Path, folder: Path) -> Path:
    folder.mkdir()
    _require_room(packs, folder)
    for pack in packs:
        with (folder / pack.name).open("wb") as target:
            for sha256, size in pack.chunks:
                _append(target, chunk_dir / sha256, sha256, size)
    return folder


def _require_room(packs: Sequence[Pack], folder: Path) -> None:
    needed, free = sum(pack.size for pack in packs), shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            "there is too little room to build packs",
            field=str(folder),
            found=f"{free:,} bytes free",
            expected=f"{needed:,} bytes",
            fix="Make room on this machine, then run it again",
        )


def _append(target: BinaryIO, chunk: Path, sha256: str, size: int) -> None:
    digest = hashlib.sha256()
    written = 0
    try:
        with chunk.open("rb") as source:
            while block := source.read(_BLOCK):
                digest.update(block)
                written += target.write(block)
    except FileNotFoundError:
        written = -1
    if written != size or digest.hexdigest() != sha256:
        raise DataError(
            "a chunk on this machine is missing or damaged",
            field=str(chunk),
            fix="Cut the data set again: remove that folder, and run it again",
        )
