"""What tests tell the Drive stand-in and ask it, beside its API."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.standins.drive_behaviour import Fault, State
from tests.standins.drive_store import FOLDER, ROOT, SHARED_DRIVE, Content, Entry, Store

if TYPE_CHECKING:
    from collections.abc import Mapping


CONTROL = "control.sock"
"""The control socket, in the stand-in's folder."""


class Control:
    """Every public method may be called by name over the control socket, with JSON both ways."""

    def __init__(self, state: State, store: Store) -> None:
        self._state, self._store = state, store

    def behave(self, **how: Any) -> None:
        """Behave so from now on, and in all else as before; see `Behaviour`."""
        for name, value in how.items():
            setattr(self._state.behaviour, name, value)
        self._store.quota = self._state.behaviour.quota

    def fault(self, **fault: Any) -> None:
        """Let the next calls that match go wrong; see `Fault`."""
        self._state.faults.append(Fault(**fault))

    def mend(self) -> None:
        """Let nothing go wrong any more."""
        self._state.faults.clear()

    def calls(self) -> list[str]:
        """The newest calls: method, path and query."""
        return list(self._state.calls)

    def traffic(self) -> Mapping[str, Mapping[str, int]]:
        """What each client address has done; see `Traffic`."""
        return {address: asdict(traffic) for address, traffic in self._state.traffic.items()}

    def forget(self) -> None:
        """Count from zero, also what was moved today."""
        self._state.forget()

    def files(self, path: str, *, shared: bool = False) -> list[list[Any]]:
        """Names and bytes (null for folders) of what is in a folder, sorted."""
        folders = [entry.id for entry in self._store.at(path, SHARED_DRIVE if shared else ROOT)]
        found = [
            file for file in self._store.all(0) if set(folders) & set(file["parents"]) and not file["trashed"]
        ]
        return sorted([file["name"], int(file["size"]) if "size" in file else None] for file in found)

    def rot(self, path: str) -> None:
        """Change a byte in the middle of a file; size and checksums stay."""
        file = self._content(path).path
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    def truncate(self, path: str, size: int) -> None:
        """Shorten a file; size and checksums tell it."""
        content = self._content(path)
        with content.path.open("r+b") as file:
            file.truncate(size)
        content.measure()

    def double(self, path: str) -> None:
        """Make another file of the same name and content beside one, or another, empty folder."""
        entry = self._entry(path)
        meta = {"name": entry.name, "mimeType": entry.mime_type, "parents": entry.parents}
        content = None
        if entry.mime_type != FOLDER:
            content = self._store.new_content()
            content.path.write_bytes(self._content(path).path.read_bytes())
            content.measure()
        self._store.create(meta, content)

    def _entry(self, path: str) -> Entry:
        return self._store.at(path)[-1]

    def _content(self, path: str) -> Content:
        content = self._entry(path).content
        assert content, path
        return content
