"""What goes to nodes besides data: the worker's code, the lock of its environment, wheels, templates."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tailtrain.data.verify import tree_sha256
from tailtrain.errors import DeclarationError
from tailtrain.planning.plan import CPU_LOCK, CUDA_LOCK, Material
from tailtrain.planning.templates import Templates

DATA_MODULES = ("__init__.py", "folder.py", "packs.py", "verify.py")
"""Of the data layer, what fetching chunks needs besides its own modules."""

PACKAGE = Path(__file__).resolve().parents[1]
_TORCH = re.compile(r"^torch==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Bundle:
    """A project's material: ids for the plan, bytes and files for the nodes."""

    material: Material
    code: bytes
    locks: Path
    wheels: tuple[Path, ...]
    templates: Templates


@cache
def worker_code() -> tuple[str, bytes]:
    """The worker's code: its id, which a host can work out again, and an uncompressed tar of it."""
    buffer = io.BytesIO()
    hashes = {}
    files = [
        *(PACKAGE / name for name in ("__init__.py", "errors.py", "partition.py", "spread.py")),
        *(PACKAGE / "data" / name for name in DATA_MODULES),
        *sorted((PACKAGE / "data").glob("pull*.py")),
        *sorted((PACKAGE / "worker").rglob("*.py")),
    ]
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in files:
            content = path.read_bytes()
            name = f"tailtrain/{path.relative_to(PACKAGE).as_posix()}"
            hashes[name] = hashlib.sha256(content).hexdigest()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return tree_sha256(hashes)[:16], buffer.getvalue()


def bundle(project: Path, wheels: str | None, package_index: str | None) -> Bundle:
    """Collect a project's material.

    Args:
        project: the folder that holds `templates/` and `locks/`.
        wheels: a folder of wheels that nodes install from, or None for the package index they use.
        package_index: an index of the user's choice, or None for the ordinary one.

    Raises:
        DeclarationError: where a folder or file of the project is missing.
    """
    folder = project / "templates"
    sources = {path.name: _text(path) for path in sorted(folder.glob("*.j2"))}
    if not sources:
        raise DeclarationError(
            "no templates",
            field=str(folder),
            fix="Run pyinfra in the folder that holds templates/ and locks/",
        )
    wheel_files: tuple[Path, ...] = ()
    if wheels is not None:
        wheel_folder = project / wheels
        if not wheel_folder.is_dir():
            raise DeclarationError("no such folder", field="group_data: wheels", found=str(wheel_folder))
        wheel_files = tuple(sorted(p for p in wheel_folder.iterdir() if p.suffix in (".whl", ".gz", ".zip")))
        if not wheel_files:
            raise DeclarationError("has no wheels", field="group_data: wheels", found=str(wheel_folder))
    code_id, code = worker_code()
    locks = project / "locks"
    ids = {name: _lock_id(locks / f"{name}.lock") for name in (CPU_LOCK, CUDA_LOCK)}
    return Bundle(
        material=Material(
            code_id=code_id,
            locks=ids,
            cpu_build_at_hand=package_index is not None or _carries_torch(locks, wheel_files),
        ),
        code=code,
        locks=locks,
        wheels=wheel_files,
        templates=Templates(sources),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DeclarationError("cannot be read", field=str(path), found=error.strerror) from None
    except UnicodeDecodeError as error:
        raise DeclarationError(
            "is no text in UTF-8", field=str(path), found=f"byte {error.object[error.start]:#04x}"
        ) from None


def _lock_id(lock: Path) -> str:
    if not lock.is_file():
        raise DeclarationError("no such lock file", field=str(lock), fix="Make it with: make locks")
    text = _text(lock)
    if not _TORCH.search(text) or "--hash=" not in text:
        raise DeclarationError(
            "is no lock of the worker's packages",
            field=str(lock),
            expected="torch among them, and their hashes",
            fix="Make it with: make locks",
        )
    return hashlib.sha256(lock.read_bytes()).hexdigest()[:16]


def _carries_torch(locks: Path, wheels: tuple[Path, ...]) -> bool:
    match = _TORCH.search(_text(locks / f"{CPU_LOCK}.lock"))
    return match is not None and any(wheel.name.startswith(f"torch-{match[1]}-") for wheel in wheels)
