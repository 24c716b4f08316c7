"""What goes to nodes: the same sources give the same bytes and ids, and a missing part is named."""

from __future__ import annotations

import io
import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest

from tailtrain.data.verify import tree, tree_sha256
from tailtrain.errors import DeclarationError
from tailtrain.fleet.material import bundle, worker_code
from tailtrain.planning.plan import CPU_LOCK, CUDA_LOCK
from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own, with the real templates and locks."""
    for folder in ("templates", "locks"):
        shutil.copytree(PROJECT / folder, tmp_path / folder)
    return tmp_path


def torch_version() -> str:
    lock = (PROJECT / "locks" / f"{CPU_LOCK}.lock").read_text()
    return next(line.split("==")[1].split()[0] for line in lock.splitlines() if line.startswith("torch=="))


def test_the_same_sources_are_the_same_bytes_and_ids(project: Path) -> None:
    first = bundle(project, None, None)
    worker_code.cache_clear()
    second = bundle(PROJECT, None, None)
    assert first.material == second.material
    assert first.code == second.code
    assert first.material.code_id == worker_code()[0]


def test_a_host_can_work_out_the_id_of_the_code_that_it_has(tmp_path: Path) -> None:
    code_id, code = worker_code()
    with tarfile.open(fileobj=io.BytesIO(code)) as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / ".complete").touch()
    assert tree_sha256(tree(str(tmp_path))).startswith(code_id)
    with (tmp_path / "tailtrain" / "errors.py").open("a") as file:
        file.write("# mine\n")
    assert not tree_sha256(tree(str(tmp_path))).startswith(code_id)


def test_the_code_is_the_worker_s_alone() -> None:
    with tarfile.open(fileobj=io.BytesIO(worker_code()[1])) as tar:
        entries = tar.getmembers()
    names = [entry.name for entry in entries]
    own = ["__init__", "errors", "partition", "spread"]
    assert names[:4] == [f"tailtrain/{name}.py" for name in own]
    assert "tailtrain/worker/config.py" in names
    # Of the rest of the project, what fetches chunks and keeps them.
    others = {name for name in names[4:] if not name.startswith("tailtrain/worker/")}
    assert {name.rpartition("/")[0] for name in others} == {"tailtrain/data"}
    assert {"tailtrain/data/pull.py", "tailtrain/data/folder.py", "tailtrain/data/packs.py"} <= others
    assert not {name for name in others if name.endswith(("build.py", "send.py", "cache.py"))}
    assert all(name.endswith(".py") for name in names)
    # Nothing of who packed it, or when.
    assert {(e.mode, e.uid, e.gid, e.mtime, e.uname, e.gname) for e in entries} == {(0o644, 0, 0, 0, "", "")}


def test_a_lock_s_id_follows_from_its_bytes(project: Path) -> None:
    before = bundle(project, None, None).material.locks
    lock = project / "locks" / f"{CPU_LOCK}.lock"
    lock.write_text(lock.read_text() + "\n")
    after = bundle(project, None, None).material.locks
    assert before[CPU_LOCK] != after[CPU_LOCK]
    assert before[CUDA_LOCK] == after[CUDA_LOCK]
    assert all(len(lock_id) == 16 for lock_id in after.values())


@pytest.mark.parametrize(
    ("wheel", "at_hand"),
    [
        (f"torch-{torch_version()}-cp311-cp311-linux_x86_64.whl", True),
        ("torch-2.0.0-cp311-cp311-linux_x86_64.whl", False),
        (f"torchvision-{torch_version()}-cp311-cp311-linux_x86_64.whl", False),
    ],
)
def test_the_cpu_build_is_at_hand_where_its_wheel_is(project: Path, wheel: str, at_hand: bool) -> None:  # noqa: FBT001 - a case of the table
    (project / "wheels").mkdir()
    (project / "wheels" / wheel).touch()
    found = bundle(project, "wheels", None)
    assert found.material.cpu_build_at_hand is at_hand
    assert [path.name for path in found.wheels] == [wheel]
    # An absolute path is taken as it is.
    assert bundle(project, str(project / "wheels"), None).wheels == found.wheels


def test_or_where_an_index_of_one_s_choice_is_named(project: Path) -> None:
    assert not bundle(project, None, None).material.cpu_build_at_hand
    assert bundle(project, None, "https://wheels.example.org/cpu").material.cpu_build_at_hand


def refused(project: Path, wheels: str | None = None) -> str:
    with pytest.raises(DeclarationError) as caught:
        bundle(project, wheels, None)
    return str(caught.value)


def test_what_is_missing_is_named(project: Path) -> None:
    assert "group_data: wheels: no such folder" in refused(project, "nowhere")
    (project / "empty").mkdir()
    assert "group_data: wheels: has no wheels" in refused(project, "empty")
    (project / "locks" / f"{CUDA_LOCK}.lock").unlink()
    message = refused(project)
    assert f"{CUDA_LOCK}.lock: no such lock file" in message
    assert message.endswith("Make it with: make locks")
    shutil.rmtree(project / "templates")
    assert "no templates" in refused(project)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"numpy==2.0\n", b"torch==2.13.0\n"])
def test_a_lock_that_is_none_is_named(project: Path, content: bytes) -> None:
    (project / "locks" / f"{CUDA_LOCK}.lock").write_bytes(content)
    assert f"{CUDA_LOCK}.lock: is no " in refused(project)


def test_a_template_that_is_a_folder_is_named(project: Path) -> None:
    (project / "templates" / "worker.json.j2").unlink()
    (project / "templates" / "worker.json.j2").mkdir()
    assert "worker.json.j2: cannot be read (found Is a directory)" in refused(project)


def test_a_template_that_is_no_text_is_named(project: Path) -> None:
    (project / "templates" / "worker.json.j2").write_bytes(b"{\xff}")
    assert "worker.json.j2: is no text in UTF-8 (found byte 0xff)" in refused(project)
