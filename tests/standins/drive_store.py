"""What the Drive stand-in stores: a tree of files in memory, their contents on the disk."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FOLDER = "application/vnd.google-apps.folder"
ROOT, SHARED_DRIVE = "0AMyDrive", "0ASharedDrive"
"""The ids of the two roots: the person's own, and that of a shared drive."""

_BLOCK = 1 << 20


def now() -> str:
    """The time as Drive writes it: UTC, milliseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class ApiError(Exception):
    """An answer of the API that is an error (https://developers.google.com/workspace/drive/api/guides/handle-errors)."""

    def __init__(self, status: int, reason: str, message: str = "") -> None:
        self.status, self.reason, self.message = status, reason, message or reason
        super().__init__(self.message)


@dataclass
class Content:
    """The bytes of a file, and what the API says of them."""

    path: Path
    size: int = 0
    md5: str = ""
    sha1: str = ""
    sha256: str = ""

    def measure(self) -> Content:
        """Read it, and set size and hashes to what they are."""
        hashes = [hashlib.md5(usedforsecurity=False), hashlib.sha1(usedforsecurity=False), hashlib.sha256()]
        self.size = 0
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                self.size += len(block)
                for each in hashes:
                    each.update(block)
        self.md5, self.sha1, self.sha256 = (each.hexdigest() for each in hashes)
        return self


@dataclass
class Entry:
    """A file or a folder."""

    name: str
    mime_type: str = "application/octet-stream"
    parents: list[str] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    content: Content | None = None
    trashed: bool = False
    created: str = field(default_factory=now)
    modified: str = field(default_factory=now)
    version: int = 1
    born: float = field(default_factory=time.monotonic)


def as_drive_time(text: str) -> str:
    """Another's time as Drive writes it."""
    short = re.sub(r"(\.\d{1,6})\d*", r"\1", text.replace("Z", "+00:00"))
    return datetime.fromisoformat(short).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Store:
    """The files; every method may be called by any thread.

    Args:
        folder: where contents lie.

    Attributes:
        quota: bytes that the person's own Drive holds.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self.quota = 15 << 30
        roots = (Entry("My Drive", FOLDER, id=ROOT), Entry("Fleet", FOLDER, id=SHARED_DRIVE))
        self._entries = {root.id: root for root in roots}

    def new_content(self) -> Content:
        """An empty file for contents, not yet anybody's."""
        path = self._folder / secrets.token_hex(12)
        path.touch()
        return Content(path)

    def get(self, id_: str) -> Entry:
        """The entry of this id, or ApiError."""
        found = self._entries.get(ROOT if id_ == "root" else id_)
        if found is None:
            raise ApiError(404, "notFound", f"File not found: {id_}.")
        return found

    def all(self, lag: float) -> list[Mapping[str, Any]]:
        """Everything that a listing shows: what is younger than so many seconds is not in it yet."""
        with self._lock:
            until = time.monotonic() - lag
            return [
                self.view(entry) for entry in self._entries.values() if entry.parents and entry.born <= until
            ]

    def view(self, entry: Entry) -> Mapping[str, Any]:
        """An entry as the API shows it: 64-bit numbers are texts."""
        shown: dict[str, Any] = {
            "kind": "drive#file",
            "id": entry.id,
            "name": entry.name,
            "mimeType": entry.mime_type,
            "parents": entry.parents,
            "trashed": self._is_gone(entry),
            "explicitlyTrashed": entry.trashed,
            "createdTime": entry.created,
            "modifiedTime": entry.modified,
            "version": str(entry.version),
            "webViewLink": f"https://drive.google.com/open?id={entry.id}",
        }
        if entry.content:
            shown |= {
                "size": str(entry.content.size),
                "md5Checksum": entry.content.md5,
                "sha1Checksum": entry.content.sha1,
                "sha256Checksum": entry.content.sha256,
            }
        return shown

    def _is_gone(self, entry: Entry) -> bool:
        """What is below a folder in the bin is in the bin too."""
        return entry.trashed or any(
            self._is_gone(self._entries[parent]) for parent in entry.parents if parent in self._entries
        )

    def used(self, *, in_bin: bool = False) -> int:
        """Bytes on the person's own Drive, or those of them in the bin."""
        with self._lock:
            return sum(
                entry.content.size
                for entry in self._entries.values()
                if entry.content and self._root_of(entry) == ROOT and (not in_bin or self._is_gone(entry))
            )

    def _root_of(self, entry: Entry) -> str:
        while entry.parents:
            entry = self._entries[entry.parents[0]]
        return entry.id

    def create(self, meta: Mapping[str, Any], content: Content | None, *, by_account: bool = False) -> Entry:
        """Make a file or folder; ApiError where there is no room or no such parent."""
        with self._lock:
            parents = [self.get(parent).id for parent in meta.get("parents") or ["root"]]
            entry = Entry(meta.get("name") or "Untitled", parents=parents)
            if content:
                self._require_room(entry, content, by_account=by_account)
            entry.content = content
            self._apply(entry, meta)
            self._entries[entry.id] = entry
            return entry

    def update(self, id_: str, meta: Mapping[str, Any], content: Content | None = None) -> Entry:
        """Change a file: its content, its place (`addParents`, `removeParents`), what else is in `meta`."""
        with self._lock:
            entry = self.get(id_)
            if content:
                self._require_room(entry, content)
                if entry.content:
                    entry.content.path.unlink()
                entry.content, entry.modified = content, now()
            self._apply(entry, meta)
            entry.version += 1
            return entry

    def _apply(self, entry: Entry, meta: Mapping[str, Any]) -> None:
        entry.name = meta.get("name", entry.name)
        entry.mime_type = meta.get("mimeType", entry.mime_type)
        entry.trashed = meta.get("trashed", entry.trashed)
        if meta.get("modifiedTime"):
            entry.modified = as_drive_time(meta["modifiedTime"])
        gone = _ids(meta.get("removeParents"))
        added = [self.get(parent).id for parent in _ids(meta.get("addParents"))]
        entry.parents = [parent for parent in entry.parents if parent not in gone] + added

    def _require_room(self, entry: Entry, content: Content, *, by_account: bool = False) -> None:
        if self._root_of(entry) != ROOT:
            return
        if by_account:
            raise ApiError(
                403,
                "storageQuotaExceeded",
                "Service Accounts do not have storage quota. Leverage shared drives instead.",
            )
        before = entry.content.size if entry.content else 0
        if self.used() - before + content.size > self.quota:
            raise ApiError(403, "storageQuotaExceeded", "The user's Drive storage quota has been exceeded.")

    def delete(self, id_: str) -> None:
        """Remove for good, with all below."""
        with self._lock:
            entry = self.get(id_)
            for child in [child.id for child in self._entries.values() if entry.id in child.parents]:
                self.delete(child)
            del self._entries[entry.id]
            if entry.content:
                entry.content.path.unlink(missing_ok=True)

    def empty_bin(self) -> None:
        """Remove for good what is in the bin."""
        for id_ in [entry.id for entry in self._entries.values() if entry.trashed]:
            if id_ in self._entries:
                self.delete(id_)

    def at(self, path: str, root: str = ROOT) -> list[Entry]:
        """The entries of a path; several where names are not unique."""
        with self._lock:
            found = [self._entries[root]]
            for name in filter(None, path.split("/")):
                parents = {entry.id for entry in found}
                found = [
                    entry
                    for entry in self._entries.values()
                    if entry.name == name and parents & set(entry.parents) and not self._is_gone(entry)
                ]
            return found


def _ids(text: str | None) -> Iterable[str]:
    return [ROOT if id_ == "root" else id_ for id_ in (text or "").split(",") if id_]
