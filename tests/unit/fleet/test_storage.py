"""The storage backend of a fleet: asked when it must be, remembered when it need not, filled, mended."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.errors import DeclarationError, StorageError
from tailtrain.fleet.storage import Storage, find_storage, packs, places
from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
from tailtrain.planning.storage_plan import PlannedStorage
from tailtrain.spec import StorageBackend
from tests.plans.situations import Situation
from tests.standins.s3 import S3StandIn, start_rclone
from tests.unit.data.storage_cases import RCLONE, damaged, make_packs, remote_at, variables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailtrain.planning.actions import Declared

BUCKET = "fleet-data"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3StandIn]:
    """S3 as rclone serves it, from a folder that tests can look into."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / BUCKET).mkdir()
    standin = start_rclone(folder, RCLONE)
    yield standin
    standin.close()


@pytest.fixture
def storage(s3: S3StandIn, tmp_path: Path) -> Storage:
    remote = remote_at(StorageBackend.S3, s3.options(), f"{BUCKET}/{tmp_path.name}", tmp_path)
    config = remote.node_config()
    planned = PlannedStorage(remote.path, hashlib.sha256(config.encode()).hexdigest())
    return Storage(remote, config, planned, tmp_path / "work")


def made(folder: Path, domain: str, *, size: int = 3000) -> PlannedDataset:
    """A data set of three chunks, in files named by their hashes."""
    [pack] = make_packs(folder, packs=1, size=size)
    chunks = [PlannedChunk(sha256, size // 3, 10) for sha256, _ in pack.chunks]
    manifest = hashlib.sha256(domain.encode()).hexdigest()
    return PlannedDataset(domain, f"{domain}.parquet", size, manifest, 30, tuple(chunks[:2]), (chunks[2],))


@pytest.fixture
def shut(storage: Storage, s3: S3StandIn, tmp_path: Path) -> Storage:
    """The same backend, of which this machine remembers the same, and which refuses to be asked."""
    options = {**s3.options(), "secret_access_key": "another"}
    remote = remote_at(StorageBackend.S3, options, f"{BUCKET}/{tmp_path.name}", tmp_path)
    return Storage(remote, storage.config, storage.planned, storage.work_dir)


def test_what_it_lacks_is_uploaded_once_and_is_there_then(storage: Storage, tmp_path: Path) -> None:
    datasets = [made(tmp_path / "chunks", "natural"), made(tmp_path / "chunks", "coding", size=4500)]
    looked = storage.looked_at(datasets, needed=True)
    assert looked.planned.uploads == {pack.name: pack.size for pack in packs(datasets)}
    looked.fill(datasets, looked.planned.uploads, tmp_path / "chunks")
    assert storage.looked_at(datasets, needed=True).planned.uploads == {}
    assert damaged(storage.remote, packs(datasets), tmp_path) == []


def test_only_the_packs_that_are_planned_are_uploaded(storage: Storage, tmp_path: Path) -> None:
    datasets = [made(tmp_path / "chunks", "natural"), made(tmp_path / "chunks", "coding", size=4500)]
    first, second = packs(datasets)
    storage.fill(datasets, [first.name], tmp_path / "chunks")
    assert storage.looked_at(datasets, needed=True).planned.uploads == {second.name: second.size}


def test_a_filled_backend_is_not_asked_where_nobody_needs_it(
    storage: Storage, shut: Storage, tmp_path: Path
) -> None:
    datasets = [made(tmp_path / "chunks", "natural")]
    with pytest.raises(StorageError):
        shut.looked_at(datasets, needed=False)
    storage.fill(datasets, [pack.name for pack in packs(datasets)], tmp_path / "chunks")
    assert shut.looked_at(datasets, needed=False) is shut
    # A host that is to get something must get it: then the backend is asked whatever is remembered.
    with pytest.raises(StorageError):
        shut.looked_at(datasets, needed=True)
    # Of another data set nothing is remembered.
    with pytest.raises(StorageError):
        shut.looked_at([*datasets, made(tmp_path / "chunks", "coding", size=4500)], needed=False)


def test_a_backend_that_somebody_else_filled_is_remembered_too(storage: Storage, tmp_path: Path) -> None:
    datasets = [made(tmp_path / "chunks", "natural")]
    storage.fill(datasets, [pack.name for pack in packs(datasets)], tmp_path / "chunks")
    mine = Storage(storage.remote, storage.config, storage.planned, tmp_path / "my work")
    assert mine.looked_at(datasets, needed=False).planned.uploads == {}
    assert mine.looked_at(datasets, needed=False) is mine


@pytest.mark.parametrize("content", ["", "{", "3", '{"a": 1}', "[1, null]"])
def test_what_is_remembered_is_trusted_no_further_than_it_makes_sense(
    storage: Storage, shut: Storage, tmp_path: Path, content: str
) -> None:
    datasets = [made(tmp_path / "chunks", "natural")]
    storage.fill(datasets, [pack.name for pack in packs(datasets)], tmp_path / "chunks")
    [memory] = (tmp_path / "work").glob("*.json")
    memory.write_text(content)
    with pytest.raises(StorageError):
        shut.looked_at(datasets, needed=False)
    assert storage.looked_at(datasets, needed=False).planned.uploads == {}


def test_other_credentials_or_another_folder_are_another_backend(
    storage: Storage, shut: Storage, tmp_path: Path
) -> None:
    datasets = [made(tmp_path / "chunks", "natural")]
    storage.fill(datasets, [pack.name for pack in packs(datasets)], tmp_path / "chunks")
    for other in (PlannedStorage("fleet:elsewhere", "c"), PlannedStorage(storage.planned.path, "d" * 64)):
        with pytest.raises(StorageError):
            Storage(shut.remote, "", other, shut.work_dir).looked_at(datasets, needed=False)


def test_packs_in_which_chunks_are_damaged_are_uploaded_again(
    storage: Storage, s3: S3StandIn, tmp_path: Path
) -> None:
    datasets = [made(tmp_path / "chunks", "natural"), made(tmp_path / "chunks", "coding", size=4500)]
    storage.fill(datasets, [pack.name for pack in packs(datasets)], tmp_path / "chunks")
    first = packs(datasets)[0]
    assert s3.folder is not None
    [there] = (s3.folder / BUCKET / tmp_path.name).rglob(first.name)
    there.write_bytes(bytes(first.size))
    assert damaged(storage.remote, packs(datasets), tmp_path) == [first.name]
    assert storage.mend(datasets, frozenset([first.chunks[0][0]]), tmp_path / "chunks") == 1
    assert damaged(storage.remote, packs(datasets), tmp_path) == []
    assert storage.mend(datasets, frozenset(), tmp_path / "chunks") == 0


def test_an_upload_says_how_far_it_is(
    storage: Storage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = [made(tmp_path / "chunks", "natural")]
    storage.fill(datasets, [pack.name for pack in packs(datasets)], tmp_path / "chunks")
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"    uploading to {storage.planned.path}: 100%"
    assert len(said) <= 10


def test_every_chunk_of_all_data_sets_has_its_place(tmp_path: Path) -> None:
    datasets = [made(tmp_path / "chunks", "natural"), made(tmp_path / "chunks", "coding", size=4500)]
    assert set(places(datasets)) == {c.sha256 for d in datasets for c in (*d.train, *d.heldout)}


def declared(backend: str, **storage: Any) -> Declared:
    return Situation().with_settings(storage_backend=backend, storage=storage).declared()


def test_where_the_control_machine_sends_there_is_none(tmp_path: Path) -> None:
    assert find_storage(tmp_path, declared("local")) is None
    assert find_storage(tmp_path, declared("local", remote="fleet:x")) is None


def test_the_declared_remote_is_found_with_what_nodes_are_told_of_it(
    s3: S3StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables("fleet", s3.options()).items():
        monkeypatch.setenv(name, value)
    found = find_storage(tmp_path, declared("s3", remote=f"fleet:{BUCKET}/x"))
    assert found is not None
    assert found.planned.path == f"fleet:{BUCKET}/x"
    assert found.planned.config_sha256 == hashlib.sha256(found.config.encode()).hexdigest()
    assert s3.options()["secret_access_key"] in found.config
    assert s3.options()["secret_access_key"] not in repr(found.planned)
    assert (found.planned.uploads, found.planned.ca_text) == (None, None)


def test_a_remote_that_nobody_configured_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "rclone.conf"))
    (tmp_path / "rclone.conf").write_text("[another]\ntype = s3\n")
    (tmp_path / "rclone.conf").chmod(0o600)
    with pytest.raises(DeclarationError, match="fleet"):
        find_storage(tmp_path / "project", declared("s3", remote="fleet:x"))
