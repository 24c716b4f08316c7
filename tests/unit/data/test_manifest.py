"""Manifests: canonical bytes, an id that vouches for them, and nothing believed that contradicts itself."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tailtrain.data import manifest as manifests
from tailtrain.data.chunking import chunk_limits
from tailtrain.data.manifest import ChunkFile, Manifest
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_bytes_are_json_with_sorted_keys_no_spaces_and_one_newline(
    dataset: tuple[Manifest, Path],
) -> None:
    raw = dataset[0].encode()
    expected = json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    assert raw.decode() == expected


def test_a_saved_manifest_is_named_by_its_id_and_loads_as_it_was(
    dataset: tuple[Manifest, Path], tmp_path: Path
) -> None:
    manifest, _ = dataset
    path = manifests.save(manifest, tmp_path / "manifests")
    assert path.name == f"{manifest.id}.json"
    assert manifests.load(path) == manifest


def test_a_manifest_whose_bytes_are_not_those_of_its_name_is_refused(
    dataset: tuple[Manifest, Path], tmp_path: Path
) -> None:
    path = manifests.save(dataset[0], tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"natural"', b'"unnatural"'))
    with pytest.raises(DataError, match="not the one that its name says"):
        manifests.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "not a manifest"),
        ({"surprise": 1}, "not a manifest"),
        ({"records": 5}, "contradicts itself: train and held-out records"),
        ({"train_text_bytes": 5}, "contradicts itself: bytes counted"),
        ({"byte_counts": [1]}, "contradicts itself: byte counts"),
        ({"heldout": []}, "contradicts itself: rows of the held-out chunks"),
        ({"file_sha256": "../../etc/passwd"}, "not a manifest"),
        ({"train_records": -1}, "not a manifest"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(
    dataset: tuple[Manifest, Path], change: dict[str, Any], message: str
) -> None:
    content = {**json.loads(dataset[0].encode()), **change}
    raw = json.dumps(content, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    with pytest.raises(DataError, match=message):
        manifests.decode(raw, name="changed")


def test_a_chunk_that_is_named_twice_is_refused(dataset: tuple[Manifest, Path]) -> None:
    manifest, _ = dataset
    twin = manifest.train[0]
    same_rows = next(index for index, chunk in enumerate(manifest.train) if index and chunk.rows == twin.rows)
    train = (*manifest.train[:same_rows], twin, *manifest.train[same_rows + 1 :])
    with pytest.raises(DataError, match="contradicts itself: different chunk names"):
        manifests.decode(msgspec.structs.replace(manifest, train=train).encode(), name="twins")


def test_other_spelling_of_the_same_content_is_refused(dataset: tuple[Manifest, Path]) -> None:
    """Two spellings would be two ids of one data set."""
    with pytest.raises(DataError, match="not in canonical form"):
        manifests.decode(dataset[0].encode() + b"\n", name="spelt otherwise")


def test_the_manifest_of_a_terabyte_is_small_and_read_at_once(tmp_path: Path) -> None:
    """5e8 records of 2 kB: chunks of 64 MB, so as many as fit into a manifest of a few megabytes."""
    records, text_bytes = 500_000_000, 10**12
    rows, size = chunk_limits(records, text_bytes)
    per_chunk = min(rows, size // (text_bytes // records))
    chunks = [
        ChunkFile(
            hashlib.sha256(str(first).encode()).hexdigest(), 25_000_000, min(per_chunk, records - first)
        )
        for first in range(0, records, per_chunk)
    ]
    assert 256 <= len(chunks) <= 16_384
    manifest = Manifest(
        domain="natural",
        file="terabyte.parquet",
        file_sha256="0" * 64,
        file_bytes=text_bytes,
        records=records,
        text_column="text",
        columns=(("text", "string"),),
        heldout_fraction=0.0,
        train=tuple(chunks),
        heldout=(),
        train_records=records,
        heldout_records=0,
        train_text_bytes=text_bytes,
        heldout_text_bytes=0,
        byte_counts=(text_bytes, *[0] * 255),
    )
    path = manifests.save(manifest, tmp_path)
    assert path.stat().st_size < 2_000_000
    started = time.process_time()
    assert manifests.load(path) == manifest
    assert time.process_time() - started < 1


def test_a_missing_manifest_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manifest cannot be read .found No such file"):
        manifests.load(tmp_path / "none.json")


def test_verifying_names_what_is_missing_or_damaged_and_ignores_other_files(
    dataset: tuple[Manifest, Path],
) -> None:
    manifest, folder = dataset
    missing, damaged = manifest.train[0].sha256, manifest.heldout[0].sha256
    (folder / missing).unlink()
    (folder / damaged).write_bytes(b"x" * (folder / damaged).stat().st_size)
    (folder / "other").write_bytes(b"other")
    findings = manifests.verify_chunks(manifest, folder)
    assert findings["missing"] == [missing]
    assert findings["damaged"] == {damaged: "has other content than its name says"}
    assert findings["extra"] == []


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(DataError, match="file cannot be written"):
        manifests.write_atomically(tmp_path / "taken", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
