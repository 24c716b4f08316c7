"""The manifest of a data set: its chunks, and everything that planning and validation need to know of it.

The manifest is canonical JSON (sorted keys, no spaces, one newline at the end), so the SHA-256 of its bytes
is the data set's id: the same file cut the same way has the same id everywhere. Chunks are named by the
SHA-256 of their files, so a manifest vouches for every byte of the data set.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from tailtrain.data import verify
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

_BYTE_VALUES = 256

Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class ChunkFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One immutable parquet file of records, named by its SHA-256; `bytes` is the file's size."""

    sha256: Sha256
    bytes: Positive
    rows: Positive


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A data set as it was cut.

    Attributes:
        format: of this manifest.
        domain: what kind of text it is, as the declaration names it.
        file: name of the parquet file that was cut, without its folder.
        file_sha256: hash of that file.
        file_bytes: its size.
        records: its rows; each is in exactly one chunk, for training or held out.
        text_column: its column that became the chunks' `text`.
        columns: its columns, name and Arrow type.
        heldout_fraction: how much of it was to be held out.
        train: chunks to train on, in the file's order.
        heldout: chunks that are never trained on.
        train_records: rows of the train chunks.
        heldout_records: rows of the held-out chunks.
        train_text_bytes: bytes of text (UTF-8, before compression) in the train chunks.
        heldout_text_bytes: the same of the held-out chunks.
        byte_counts: how often each of the 256 byte values stands in the training text.
    """

    format: Literal[1] = 1
    domain: str
    file: str
    file_sha256: Sha256
    file_bytes: Positive
    records: Positive
    text_column: str
    columns: tuple[tuple[str, str], ...]
    heldout_fraction: float
    train: tuple[ChunkFile, ...]
    heldout: tuple[ChunkFile, ...]
    train_records: Positive
    heldout_records: Count
    train_text_bytes: Count
    heldout_text_bytes: Count
    byte_counts: tuple[Count, ...]

    def encode(self) -> bytes:
        """Give the canonical bytes."""
        return msgspec.json.encode(self, order="sorted") + b"\n"

    @property
    def id(self) -> str:
        """The data set's id: the SHA-256 of the canonical bytes, in hex."""
        return hashlib.sha256(self.encode()).hexdigest()

    @property
    def chunks(self) -> tuple[ChunkFile, ...]:
        """All chunks, those for training first."""
        return self.train + self.heldout

    @property
    def chunk_bytes(self) -> int:
        """What all chunk files take on disk."""
        return sum(chunk.bytes for chunk in self.chunks)


def decode(raw: bytes, *, name: str) -> Manifest:
    """Read a manifest's bytes and check that its numbers agree with each other.

    Raises:
        DataError: it is not a manifest, not in canonical form, or contradicts itself; `name` says which.
    """
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError("this is not a manifest of a data set", field=name, found=error) from error
    if manifest.encode() != raw:
        raise DataError("the manifest is not in canonical form", field=name, fix="Cut the data set again.")
    for what, found, expected in (
        ("train and held-out records", manifest.train_records + manifest.heldout_records, manifest.records),
        ("rows of the train chunks", sum(chunk.rows for chunk in manifest.train), manifest.train_records),
        (
            "rows of the held-out chunks",
            sum(chunk.rows for chunk in manifest.heldout),
            manifest.heldout_records,
        ),
        ("different chunk names", len({chunk.sha256 for chunk in manifest.chunks}), len(manifest.chunks)),
        ("byte counts", len(manifest.byte_counts), _BYTE_VALUES),
        ("bytes counted", sum(manifest.byte_counts), manifest.train_text_bytes),
    ):
        if found != expected:
            raise DataError(
                f"the manifest contradicts itself: {what}", field=name, found=found, expected=expected
            )
    return manifest


def load(path: Path) -> Manifest:
    """Read a manifest file; one that is named by a SHA-256 must have it.

    Raises:
        DataError: it is missing, unreadable, not a manifest, or not the one that its name says.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError("the manifest cannot be read", field=str(path), found=error.strerror) from error
    digest = hashlib.sha256(raw).hexdigest()
    if re.fullmatch(r"[0-9a-f]{64}", path.stem) and digest != path.stem:
        raise DataError("the manifest is not the one that its name says", field=str(path), found=digest)
    return decode(raw, name=str(path))


def save(manifest: Manifest, folder: Path) -> Path:
    """Write `<folder>/<id>.json` atomically and give its path."""
    path = folder / f"{manifest.id}.json"
    write_atomically(path, manifest.encode())
    return path


def verify_chunks(manifest: Manifest, chunk_dir: Path, *, thorough: bool = True) -> verify.Findings:
    """Compare a folder of chunk files with the manifest; files of other data sets do not matter.

    Args:
        manifest: the data set.
        chunk_dir: where the chunk files are.
        thorough: hash every file, instead of those only that changed since they were last hashed.

    Raises:
        DataError: the folder cannot be read.
    """
    wanted = {chunk.sha256: chunk.bytes for chunk in manifest.chunks}
    try:
        findings = verify.examine(str(chunk_dir), wanted, thorough=thorough)
    except OSError as error:
        raise DataError("the chunks cannot be read", field=str(chunk_dir), found=error.strerror) from error
    return {**findings, "extra": []}


def write_atomically(path: Path, content: bytes) -> None:
    """Put a small file in place whole or not at all; its folder is made where it is missing.

    Raises:
        DataError: it cannot be written.
    """
    temporary = path.with_name(f"{verify.TEMPORARY}{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataError("the file cannot be written", field=str(path), found=error.strerror) from error
