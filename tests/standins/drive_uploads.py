"""Uploads to the Drive stand-in: whole in one call, or piece by piece in a session.

https://developers.google.com/workspace/drive/api/guides/manage-uploads
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.standins.drive_store import ApiError, Content, Entry, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PIECE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_UNIT = 256 << 10


@dataclass
class _Session:
    id: str | None
    meta: Mapping[str, Any]
    query: Mapping[str, str]
    content: Content
    by_account: bool
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Told:
    """What came of a call of a session: the file, where it is complete, or the bytes that there are."""

    received: int
    size: int
    query: Mapping[str, str]
    entry: Entry | None = None


class Uploads:
    """The sessions that are open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, _Session] = {}

    def begin(
        self, id_: str | None, meta: Mapping[str, Any], query: Mapping[str, str], *, by_account: bool
    ) -> str:
        """Open a session for a new file, or for that of an id; give its name."""
        for known in filter(None, (id_, *meta.get("parents", ()))):
            self._store.get(known)
        name = secrets.token_urlsafe(12)
        self._sessions[name] = _Session(id_, meta, query, self._store.new_content(), by_account)
        return name

    def go_on(self, name: str, piece: str | None, body: Iterator[bytes]) -> Told:
        """Take a piece; a call that ends in its middle leaves the session as it was."""
        session = self._sessions.get(name)
        if not session:
            raise ApiError(404, "notFound", "upload session not found")
        with session.lock:
            received = self._take(session, piece, body) if piece else self._take_all(session, body)
            size = session.content.size
            total = piece.rpartition("/")[2] if piece else str(size)
            if total == "*" or size < int(total):
                return Told(received, size, session.query)
            del self._sessions[name]
            entry = self.store_as(session.id, session.meta, session.content, by_account=session.by_account)
            return Told(received, size, session.query, entry)

    def store_as(
        self, id_: str | None, meta: Mapping[str, Any], content: Content, *, by_account: bool
    ) -> Entry:
        """Make a new file of it, or the content of the one with this id."""
        try:
            content.measure()
            if id_:
                return self._store.update(id_, meta, content)
            return self._store.create(meta, content, by_account=by_account)
        except ApiError:
            content.path.unlink()
            raise

    def _take_all(self, session: _Session, body: Iterator[bytes]) -> int:
        with session.content.path.open("wb") as file:
            session.content.size = sum(file.write(block) for block in body)
        return session.content.size

    def _take(self, session: _Session, piece: str, body: Iterator[bytes]) -> int:
        found = _PIECE.fullmatch(piece)
        if not found:
            raise ApiError(400, "badRequest", "Content-Range")
        if not found[1]:
            return 0
        first, behind = int(found[1]), int(found[2]) + 1
        if first > session.content.size:
            raise ApiError(400, "badRequest", "Content-Range is out of step")
        with session.content.path.open("r+b") as file:
            file.seek(first)
            received = sum(file.write(block) for block in body)
            file.truncate()
        last = found[3] != "*" and behind == int(found[3])
        if received != behind - first or (received % _UNIT and not last):
            raise ApiError(
                400, "badRequest", "a piece is not a multiple of 256 KiB, or not what was announced"
            )
        session.content.size = behind
        return received


def split_related(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """The two parts of multipart/related (RFC 2387): what describes the file, and its bytes."""
    found = re.search(r'boundary="?([^";]+)', content_type)
    if not found:
        raise ApiError(400, "badContent", "no boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + found[1].encode())[1:3]
    (_, described), (head, content) = (part.lstrip(b"\r\n").split(b"\r\n\r\n", 1) for part in parts)
    kind = re.search(rb"(?i)content-type:\s*([^\r\n;]+)", head)
    return {
        "mimeType": kind[1].decode() if kind else "application/octet-stream",
        **json.loads(described),
    }, content
