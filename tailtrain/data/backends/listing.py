"""Which packs a storage backend has, and what is wrong with its folders."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tailtrain.data.backends.complaints import explain
from tailtrain.data.backends.program import DIRECTORY_NOT_FOUND, decode, run
from tailtrain.data.packs import PACK_FOLDER
from tailtrain.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.data.backends.remote import Remote
    from tailtrain.data.packs import Pack

COPIES_DIFFER = -1
"""Stands for the size of a pack of which there are several copies that differ in size."""

_PACK = re.compile(r"[0-9a-f]{64}")
_FOLDER_TYPE = "application/vnd.google-apps.folder"
# A person waits for a listing: rclone's ten tries would take minutes to say that nobody answers.
_TRIES = {False: "2", True: "5"}


@dataclass(frozen=True)
class Listing:
    """What a backend has.

    Attributes:
        packs: the bytes of each pack by its name; `COPIES_DIFFER` where copies of one name differ.
        duplicates: packs of which there is more than one (Drive alone can have that), with how many.
        free_bytes: what still fits there; None where the backend does not say (S3, shared drives).
    """

    packs: Mapping[str, int] = field(default_factory=dict)
    duplicates: Mapping[str, int] = field(default_factory=dict)
    free_bytes: int | None = None

    def missing(self, packs: Sequence[Pack]) -> tuple[Pack, ...]:
        """Those that are not there, or not with their size."""
        return tuple(pack for pack in packs if self.packs.get(pack.name) != pack.size)


class _Entry(msgspec.Struct, rename="pascal"):
    name: str
    size: int


class _Folder(msgspec.Struct):
    name: str
    parents: list[str] = msgspec.field(default_factory=list)


_Folders = list[_Folder] | None


class _Space(msgspec.Struct):
    free: int | None = None


def list_packs(remote: Remote) -> Listing:
    """Ask the backend which packs it has; one that has none yet has an empty listing.

    Sizes only: what is in a pack is checked by the node that reads it, chunk by chunk.

    Raises:
        StorageError: it cannot be asked, there is no such bucket, or a folder is there twice.
    """
    # Drive takes a second or so for each question: all are asked at once.
    with ThreadPoolExecutor() as threads:
        folders = threads.submit(require_single_folders, remote)
        free_bytes = threads.submit(_free_bytes, remote)
        entries = _entries(remote, remote.packs_path, "--files-only") or []
    folders.result()
    sizes: dict[str, set[int]] = {}
    for entry in entries:
        if _PACK.fullmatch(entry.name):
            sizes.setdefault(entry.name, set()).add(entry.size)
    copies = Counter(entry.name for entry in entries if entry.name in sizes)
    return Listing(
        {name: min(found) if len(found) == 1 else COPIES_DIFFER for name, found in sorted(sizes.items())},
        {name: count for name, count in sorted(copies.items()) if count > 1},
        free_bytes.result(),
    )


def has_folder(remote: Remote) -> bool:
    """Whether the folder of packs is there, and listings show it already."""
    return _entries(remote, remote.packs_path, "--files-only") is not None


def _entries(remote: Remote, path: str, kind: str) -> list[_Entry] | None:
    """What is in a folder; None where there is no such folder."""
    flags = ("--no-modtime", "--no-mimetype", f"--low-level-retries={_TRIES[remote.on_drive]}")
    code, answer = run(remote, ("lsjson", path, kind, *flags), accept=(0, DIRECTORY_NOT_FOUND))
    if code == DIRECTORY_NOT_FOUND:
        # A bucket's folders are no things of their own: what S3 misses is the bucket.
        if not remote.on_drive:
            raise explain(remote, ("NoSuchBucket",), code)
        return None
    found: list[_Entry] = decode(answer, list[_Entry], remote)
    return found


def _free_bytes(remote: Remote) -> int | None:
    """What the account's Drive says; a shared drive has not the account's limit, but one of files."""
    if not remote.on_drive or "team_drive" in remote.options:
        return None
    _, answer = run(remote, ("about", "--json", f"{remote.name}:", f"--low-level-retries={_TRIES[True]}"))
    space: _Space = decode(answer, _Space, remote)
    return space.free


def require_single_folders(remote: Remote) -> None:
    """Refuse where one of the folders on the way is there twice: rclone sees only what is in one of them.

    One question finds out whether any two folders of these names have the same parent; only then is it looked
    for folder by folder whether they are ours. Names in a bucket are unique.

    Raises:
        StorageError: one is there twice; names it and says how to make them one.
    """
    if not remote.on_drive:
        return
    names = [*filter(None, remote.folder.split("/")), PACK_FOLDER]
    any_of = " or ".join(f"name='{_quoted(name)}'" for name in dict.fromkeys(names))
    query = f"({any_of}) and mimeType='{_FOLDER_TYPE}' and trashed=false"
    _, answer = run(
        remote, ("backend", "query", f"{remote.name}:", query, f"--low-level-retries={_TRIES[True]}")
    )
    found: list[_Folder] = decode(answer, _Folders, remote) or []
    if max(Counter((folder.name, *folder.parents) for folder in found).values(), default=0) <= 1:
        return
    for depth, name in enumerate(names):
        parent = f"{remote.name}:{'/'.join(names[:depth])}"
        entries = _entries(remote, parent, "--dirs-only") or []
        count = sum(entry.name == name for entry in entries)
        if count > 1:
            raise StorageError(
                f"there are {count} folders of the name {name!r}, and rclone sees what is in one of them",
                field=parent,
                fix=f"Make them one: rclone dedupe skip --max-depth 1 {parent}",
            )


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")
