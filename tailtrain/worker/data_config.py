"""The part of worker.json that says what data there is, whose it is, and where it can be fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailtrain.worker.config_reader import Section

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
"""How a host or a domain may be called."""

LAST_PORT = 65535

_SHA256 = re.compile(r"[0-9a-f]{64}")
_REMOTE = re.compile(r"[\w.+@-][\w.+@ -]*:[^\x00-\x1f]*")


@dataclass(frozen=True)
class RowRange:
    """Rows `start` to `stop` (not included) of one chunk."""

    chunk: str
    start: int
    stop: int


@dataclass(frozen=True)
class Span:
    """From row `row` of training chunk `first` up to, and without, row `stop` of training chunk `last`.

    Chunks are counted in the order in which they are shared out (`tailtrain.spread`).
    """

    first: int
    row: int
    last: int
    stop: int


@dataclass(frozen=True)
class DomainConfig:
    """One domain's data: whose rows are whose, and the chunks that nobody trains on.

    Attributes:
        domain: its name.
        manifest: SHA-256 of its manifest.
        ranges: the rows that this node owns, in the order of sharing out, neighbours merged.
        others: the rows that each other node owns; of no nodes where every node has all data.
        heldout: chunks that nobody trains on.
    """

    domain: str
    manifest: str
    ranges: tuple[RowRange, ...]
    others: Mapping[str, tuple[Span, ...]]
    heldout: tuple[str, ...]


@dataclass(frozen=True)
class RemoteConfig:
    """The storage backend: an rclone path, the file that rclone reads about it, and more options of it."""

    path: str
    config: Path
    flags: tuple[str, ...]


@dataclass(frozen=True)
class StorageConfig:
    """Where chunks come from: the port of every node's chunk server, rclone, and the backend if there is one.

    Chunk servers listen on the nodes' tailnet addresses; a chunk's URL is its SHA-256.
    """

    chunk_port: int
    rclone: Path
    remote: RemoteConfig | None


def read_storage(section: Section) -> StorageConfig:
    """The storage section; WorkerError names a field that is not acceptable."""
    storage = StorageConfig(
        chunk_port=section.integer("chunk_port", 1, LAST_PORT),
        rclone=section.absolute_path("rclone"),
        remote=_remote(section.section_or_none("remote")),
    )
    section.end()
    return storage


def _remote(section: Section | None) -> RemoteConfig | None:
    if section is None:
        return None
    flags = section.items("flags")
    for index, flag in enumerate(flags):
        if not isinstance(flag, str):
            raise section.bad(f"flags[{index}]", flag, "an option of rclone")
    remote = RemoteConfig(
        path=section.text("path", _REMOTE, "a remote of rclone and a folder, as name:folder"),
        config=section.absolute_path("config"),
        flags=tuple(flags),
    )
    section.end()
    return remote


def read_domain(section: Section) -> DomainConfig:
    """One domain of the data; WorkerError names a field that is not acceptable."""
    ranges = []
    for index, item in enumerate(section.items("ranges")):
        match item:
            case [str(chunk), int(start), int(stop)] if _SHA256.fullmatch(chunk) and 0 <= start < stop:
                ranges.append(RowRange(chunk, start, stop))
            case _:
                raise section.bad(f"ranges[{index}]", item, "[chunk's sha256, first row, row after the last]")
    others = section.section("others")
    heldout = []
    for index, item in enumerate(section.items("heldout")):
        if not isinstance(item, str) or not _SHA256.fullmatch(item):
            raise section.bad(f"heldout[{index}]", item, "a chunk's sha256")
        heldout.append(item)
    domain = DomainConfig(
        domain=section.text("domain", NAME, "a name"),
        manifest=section.text("manifest", _SHA256, "a manifest's sha256"),
        ranges=tuple(ranges),
        others={
            node: tuple(
                _span(others, f"{node}[{index}]", item) for index, item in enumerate(others.items(node))
            )
            for node in others.names()
        },
        heldout=tuple(heldout),
    )
    section.end()
    return domain


def _span(section: Section, where: str, item: Any) -> Span:
    match item:
        case [int(first), int(row), int(last), int(stop)] if all(
            type(number) is int and number >= 0 for number in item
        ) and (first, row) < (last, stop):
            return Span(first, row, last, stop)
    raise section.bad(where, item, "[first chunk, its first row, last chunk, row after the last]")
