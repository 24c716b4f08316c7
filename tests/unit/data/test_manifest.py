"""Manifests: canonical bytes, an id that vouches for them, and nothing believed that contradicts itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tailtrain.data import manifest as manifests
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.data.manifest import Manifest


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
