"""What can go wrong with the files of a node and of the control machine's cache: found, named, or mended.

More of it stands where the parts are tested: `test_verify.py` (flipped, truncated, swapped, links, what is
not read again), `test_cache.py` (chunks, manifest, index, source file), `test_transfer_faults.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailtrain.data import verify
from tailtrain.data.cache import chunk_dir, ensure_dataset, manifest_path
from tailtrain.data.chunking import cut
from tailtrain.data.inspect import inspect_parquet
from tailtrain.data.manifest import verify_chunks
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tailtrain.data.manifest import Manifest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
CONTENTS = [f"chunk {number} ".encode() * 1000 for number in range(4)]
WANTED = {hashlib.sha256(content).hexdigest(): len(content) for content in CONTENTS}
A, B, C, D = WANTED
OTHER = "has other content than its name says"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four right files of one size, verified and remembered, with a short time to settle."""
    monkeypatch.setattr(verify, "SETTLED_NS", 50_000_000)
    place = tmp_path / "chunks"
    place.mkdir()
    for name, content in zip(WANTED, CONTENTS, strict=True):
        (place / name).write_bytes(content)
    time.sleep(0.06)
    verify.examine(str(place), WANTED)
    assert verify.examine(str(place), WANTED)["hashed"] == 0
    return place


def with_old_times(path: Path, change: Callable[[], object]) -> None:
    """Do something to a file, and give it the time that it had."""
    before = path.stat()
    change()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_two_chunks_that_changed_places_are_both_found(folder: Path) -> None:
    times = {name: (folder / name).stat().st_mtime_ns for name in (A, B)}
    (folder / A).rename(folder / "aside")
    (folder / B).rename(folder / A)
    (folder / "aside").rename(folder / B)
    for name, when in times.items():
        os.utime(folder / name, ns=(when, when))
    assert verify.examine(str(folder), WANTED)["damaged"] == {A: OTHER, B: OTHER}


def test_a_hard_link_to_another_chunk_is_found_and_neither_is_changed(folder: Path) -> None:
    (folder / A).unlink()
    (folder / A).hardlink_to(folder / B)
    found = verify.examine(str(folder), WANTED)
    assert found["damaged"] == {A: OTHER}
    assert (folder / B).read_bytes() == CONTENTS[1]


def test_a_link_even_to_the_right_content_is_no_chunk(folder: Path, tmp_path: Path) -> None:
    """What it leads to may change, and be changed, unseen."""
    (folder / A).rename(tmp_path / "elsewhere")
    (folder / A).symlink_to(tmp_path / "elsewhere")
    assert verify.examine(str(folder), WANTED)["damaged"] == {A: "is not a regular file"}


def test_a_write_through_memory_is_found(folder: Path) -> None:
    """Mapped pages change the file's times when they are written back."""
    import mmap  # noqa: PLC0415 - of no use elsewhere

    def write() -> None:
        with (folder / A).open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
            memory[7] ^= 1
            memory.flush()

    with_old_times(folder / A, write)
    assert verify.examine(str(folder), WANTED)["damaged"] == {A: OTHER}


def test_a_clock_that_was_set_back_hides_nothing(folder: Path) -> None:
    """What is remembered with times from the future is compared, not trusted."""
    directory = os.open(folder, os.O_RDONLY)
    future = {
        name: [*entry[:-1], entry[-1] + 10**18] for name, entry in verify.load_record(directory).items()
    }
    verify.save_record(directory, future)
    os.close(directory)
    content = CONTENTS[0][:-1] + b"x"
    with_old_times(folder / A, lambda: (folder / A).write_bytes(content))
    assert verify.examine(str(folder), WANTED)["damaged"] == {A: OTHER}


EXAMINE = "import json, sys; from tailtrain.data import verify; verify.SETTLED_NS = 50_000_000;"
EXAMINE += "print(json.dumps(verify.examine(sys.argv[1], json.loads(sys.argv[2]))))"


def elsewhere(folder: Path, before: str, **options: Any) -> dict[str, Any]:
    """Examine in a process of its own: in its own view of the mounts, or as another user."""
    argv = shlex.join([sys.executable, "-c", EXAMINE, str(folder), json.dumps(WANTED)])
    shell = ["unshare", "-m", "sh", "-ec", f"{before}\n{argv}"] if before else ["sh", "-c", argv]
    run = subprocess.run(shell, capture_output=True, check=True, **options)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@as_root
def test_a_folder_that_is_mounted_read_only_is_examined_all_the_same(folder: Path) -> None:
    with_old_times(folder / B, lambda: (folder / B).write_bytes(CONTENTS[1][:-1] + b"x"))
    place = shlex.quote(str(folder))
    found = elsewhere(folder, f"mount --bind {place} {place}\nmount -o remount,bind,ro {place}")
    assert found["damaged"] == {B: OTHER}
    assert found["missing"] == []


@as_root
def test_a_chunk_that_may_not_be_read_is_named_with_the_reason(folder: Path) -> None:
    (folder / C).chmod(0)
    for above in (folder, *folder.parents[:3]):
        above.chmod(0o755)
    found = verify_as_nobody(folder)
    assert found["damaged"] == {C: "cannot be read: Permission denied"}


def verify_as_nobody(folder: Path) -> dict[str, Any]:
    """Examine as a user who may read what others may; in a fork, for its Python may be out of reach."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setuid(65534)
            os.write(writing, json.dumps(verify.examine(str(folder), WANTED)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(said)
    return found


# The control machine: cutting, and the cache of what was cut.

TEXTS = [f"record {number} " + f"{number * 2654435761 % 2**32:08x} " * 60 for number in range(3000)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path, use_dictionary=False, compression="none")
    return path


def whole(manifest: Manifest, place: Path) -> bool:
    findings = verify_chunks(manifest, place)
    return not findings["missing"] and not findings["damaged"]


def leftovers(place: Path) -> list[Path]:
    return list(place.rglob(f"{verify.TEMPORARY}*"))


@pytest.mark.parametrize("victim", ["index", "manifests", "chunks"])
def test_what_vanishes_from_the_cache_is_made_again(source: Path, tmp_path: Path, victim: str) -> None:
    cache = tmp_path / "cache"
    first = ensure_dataset(source, "natural", cache)
    for path in (cache / victim).iterdir():
        path.unlink()
    assert ensure_dataset(source, "natural", cache) == first
    assert whole(first, chunk_dir(cache))
    assert manifest_path(cache, first.id).exists()


@pytest.mark.parametrize("damage", [b"", b'{"size": 1}', bytes(100)], ids=["empty", "other", "zeros"])
@pytest.mark.parametrize("victim", ["index", "manifests"])
def test_what_is_damaged_in_the_cache_is_made_again(
    source: Path, tmp_path: Path, victim: str, damage: bytes
) -> None:
    cache = tmp_path / "cache"
    first = ensure_dataset(source, "natural", cache)
    for path in (cache / victim).iterdir():
        path.write_bytes(damage)
    assert ensure_dataset(source, "natural", cache) == first
    assert manifest_path(cache, first.id).read_bytes() == first.encode()


def test_a_chunk_of_the_cache_that_is_a_link_or_another_chunk_is_made_again(
    source: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = ensure_dataset(source, "natural", cache)
    one, two, three = (chunk_dir(cache) / chunk.sha256 for chunk in first.train[:3])
    one.unlink()
    one.symlink_to(two)
    three.unlink()
    three.hardlink_to(two)
    assert ensure_dataset(source, "natural", cache) == first
    assert whole(first, chunk_dir(cache))
    assert not one.is_symlink()
    assert three.stat().st_ino != two.stat().st_ino


def test_a_source_file_that_was_replaced_with_its_old_size_and_time_is_noticed(
    source: Path, tmp_path: Path
) -> None:
    first = ensure_dataset(source, "natural", tmp_path / "cache")
    other = tmp_path / "other.parquet"
    other.write_bytes(source.read_bytes().replace(b"record 77 ", b"RECORD 77 "))
    before = source.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(source)
    after = source.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    second = ensure_dataset(source, "natural", tmp_path / "cache")
    assert second.file_sha256 != first.file_sha256
    assert second.id != first.id


def test_a_source_file_that_vanished_is_named_although_it_is_cut(source: Path, tmp_path: Path) -> None:
    ensure_dataset(source, "natural", tmp_path / "cache")
    source.unlink()
    with pytest.raises(DataError, match="the data set's file is missing") as caught:
        ensure_dataset(source, "natural", tmp_path / "cache")
    assert caught.value.field == str(source)


@as_root
def test_a_cache_that_is_mounted_read_only_is_named(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    place = shlex.quote(str(cache))
    code = (
        "import sys, pathlib; from tailtrain.data.cache import ensure_dataset\n"
        "from tailtrain.errors import DataError\n"
        "try: ensure_dataset(pathlib.Path(sys.argv[1]), 'natural', pathlib.Path(sys.argv[2]))\n"
        "except DataError as error: print(error)"
    )
    argv = shlex.join([sys.executable, "-c", code, str(source), str(cache)])
    mount = f"mount --bind {place} {place}\nmount -o remount,bind,ro {place}"
    run = subprocess.run(["unshare", "-m", "sh", "-ec", f"{mount}\n{argv}"], capture_output=True, check=True)
    expected = f"{cache}: the cache of data sets cannot be written (found Read-only file system)"
    assert run.stdout.decode().strip() == expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, with a cache on it."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    yield place / "cache"
    subprocess.run(["umount", place], check=True)


@as_root
def test_a_disk_that_fills_while_cutting_is_named_and_the_next_run_goes_on(
    source: Path, small_disk: Path
) -> None:
    hog = small_disk.parent / "hog"
    hog.write_bytes(bytes(700_000))
    with pytest.raises(
        DataError, match=r"a chunk cannot be written .found No space left on device"
    ) as caught:
        ensure_dataset(source, "natural", small_disk)
    assert caught.value.field == str(chunk_dir(small_disk))
    assert not leftovers(small_disk)
    left = [path for path in chunk_dir(small_disk).iterdir() if path.name[0] != "."]
    assert left
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in left)
    hog.unlink()
    kept = {path: path.stat().st_ino for path in left}
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk.parent], check=True)
    assert whole(ensure_dataset(source, "natural", small_disk), chunk_dir(small_disk))
    assert {path: path.stat().st_ino for path in left} == kept, "what is whole is not written again"


KILLED = """
import os, pathlib, signal, sys
from tailtrain.data.cache import ensure_dataset
source, cache, at = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
calls = 0
def progress(done, total):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)
ensure_dataset(source, "natural", cache, progress=progress)
"""


@pytest.mark.parametrize("at", [1, 3, 4, 5, 6])
def test_cutting_that_is_killed_is_done_by_the_next_run(source: Path, tmp_path: Path, at: int) -> None:
    """Killed while it decides what to hold out (3000 records are 3 batches) or while it writes."""
    cache = tmp_path / "cache"
    argv = [sys.executable, "-c", KILLED, str(source), str(cache), str(at)]
    run = subprocess.run(argv, capture_output=True, check=False)
    assert run.returncode == -signal.SIGKILL
    for path in chunk_dir(cache).glob("[0-9a-f]*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    assert not list((cache / "index").glob("*")), "nothing is believed that was not finished"
    manifest = ensure_dataset(source, "natural", cache)
    assert manifest == cut(inspect_parquet(source), "natural", tmp_path / "undisturbed")
    assert whole(manifest, chunk_dir(cache))
    assert not leftovers(cache)
