"""The worker's Python environment, built once from a lock file and shared by all hosts as a layer.

What is run to build it is what provisioning runs on a real host: `planning.environment`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cache import digest, made
from lab.system import run
from tailtrain.errors import LabError
from tailtrain.planning.environment import build_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.progress import Progress

ROOT = "/opt/tailtrain/env"
"""Where environments are on a host; each is named by the first 16 digits of its lock file's SHA-256."""

WHEELS_ON_HOST = "/mnt/wheels"
"""Where a host of the lab sees the wheel folder, read-only."""

PYTHON = (3, 11)
_LOCK_INSIDE = "/root/worker.lock"
_WHEELS_VARIABLE = "TAILTRAIN_WHEELS"
_LOCKS = {"cpu": "worker-cpu.lock", "cuda": "worker-cuda.lock"}


@dataclass(frozen=True)
class Lock:
    """A worker lock file and the folder, if any, where wheels that no index has are found."""

    path: Path
    wheels: Path | None

    @property
    def environment_id(self) -> str:
        """The directory name of the environment: 16 hexadecimal digits."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]


def choose_lock(checkout: Path, wheels: Path | None) -> Lock:
    """The CPU lock where a folder has its torch wheel, else the CUDA lock, whose wheels the index has.

    Raises:
        LabError: the folder that was named is not there or lacks that wheel.
    """
    cpu = checkout / "locks" / _LOCKS["cpu"]
    pattern = _torch_wheel(cpu)
    named = wheels or (Path(os.environ[_WHEELS_VARIABLE]) if os.environ.get(_WHEELS_VARIABLE) else None)
    if named is not None:
        if not any(named.glob(pattern)):
            raise LabError("no such wheel in the wheel folder", field=str(named), expected=pattern)
        return Lock(cpu, named.resolve())
    for folder in (checkout / "wheels", checkout.parent / "wheels", checkout.parent / "shared" / "wheels"):
        if any(folder.glob(pattern)):
            return Lock(cpu, folder.resolve())
    return Lock(checkout / "locks" / _LOCKS["cuda"], None)


def _torch_wheel(lock: Path) -> str:
    if not lock.is_file():
        raise LabError("the lock file is missing", field=str(lock), fix="Type: make locks")
    found = re.search(r"^torch==(\S+)", lock.read_text(), re.MULTILINE)
    if found is None:
        raise LabError("the lock file names no torch", field=str(lock))
    return f"torch-{found[1]}-cp311-*.whl"


def wheelhouse(cache: Path, lock: Lock, progress: Progress) -> Path:
    """A folder with everything that the lock names, downloaded if it is not in the cache.

    Raises:
        LabError: no Python 3.11, or the download failed.
    """

    def make(folder: Path) -> None:
        folder.chmod(0o755)
        with progress.step("worker environment: downloading wheels"):
            python = str(_python())
            tool = folder / ".pip"
            run([python, "-m", "venv", str(tool)])
            links = ["--find-links", str(lock.wheels)] if lock.wheels else []
            run(
                [
                    f"{tool}/bin/pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--require-hashes", "--requirement", str(lock.path), "--dest", str(folder), *links,
                ]
            )  # fmt: skip
            shutil.rmtree(tool)
            for file in folder.iterdir():
                file.chmod(0o644)

    return made(cache / "wheels", lock.environment_id, make)


def _python() -> Path:
    """A Python of the version that the locks are for."""
    if sys.version_info[:2] == PYTHON:
        return Path(sys.executable)
    name = ".".join(map(str, PYTHON))
    for found in (f"/usr/bin/python{name}", shutil.which(f"python{name}")):
        if found and Path(found).exists():
            asked = [found, "-c", "import sys; print(sys.version_info[:2])"]
            said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
            if said.strip() == str(PYTHON):
                return Path(found)
    raise LabError(
        f"the worker's lock files are for Python {name}, and this machine has none",
        fix=f"Install it, for example with: uv python install {name}",
    )


def worker_venv(cache: Path, checkout: Path, wheels: Path | None, venv: Path, progress: Progress) -> None:
    """Build the worker's environment on this machine, for tests that need what nodes have.

    Raises:
        LabError: no Python 3.11, or a part of it cannot be had.
    """
    lock = choose_lock(checkout, wheels)
    house = wheelhouse(cache, lock, progress)
    python = str(_python())
    with progress.step("worker environment: installing on this machine", note="about a minute"):
        for command in build_commands(str(venv.resolve()), str(lock.path), wheels=str(house)):
            run([python if word == "python3" else word for word in command])


def environment_layer(cache: Path, base: Path, wheels: Path, lock: Lock, progress: Progress) -> Path:
    """A layer that holds the worker environment, built inside the base system.

    Raises:
        LabError: a command of `build_commands` failed.
    """
    environment = f"{ROOT}/{lock.environment_id}"

    def make(unfinished: Path) -> None:
        with progress.step("worker environment: installing", note="about a minute"):
            unfinished.chmod(0o755)
            layer, work = unfinished / "layer", unfinished / "work"
            (layer / environment.lstrip("/")).mkdir(parents=True)
            for part in ("root", "upper", "overlay"):
                (work / part).mkdir(parents=True)
            run(_in_chroot(base, layer, work, wheels, lock, environment))
            shutil.rmtree(work)

    key = digest(lock.environment_id, base.name, repr(_build(environment)))
    return made(cache / "environment", key, make) / "layer"


def _build(environment: str) -> tuple[tuple[str, ...], ...]:
    # The folder is a mount point here, so it stays; on a host its remains are removed first.
    return build_commands(environment, _LOCK_INSIDE, wheels=WHEELS_ON_HOST)[1:]


def _in_chroot(
    base: Path, layer: Path, work: Path, wheels: Path, lock: Lock, environment: str
) -> Sequence[str]:
    """A command that builds the environment in the base system and leaves only it behind.

    All mounts are in a mount namespace of that command, so they end with it, also when it is killed.
    """
    root = work / "root"
    inside = "; ".join(shlex.join(c) for c in _build(environment))
    options = f"lowerdir={base},upperdir={work / 'upper'},workdir={work / 'overlay'}"
    script = f"""
        mount -n -t overlay overlay -o {shlex.quote(options)} {root}
        mount -n -t proc proc {root}/proc
        mount -n --bind /dev {root}/dev
        mkdir -p {root}{WHEELS_ON_HOST} {root}{environment}
        mount -n --bind {shlex.quote(str(wheels))} {root}{WHEELS_ON_HOST}
        mount -n --bind {layer}{environment} {root}{environment}
        cp {shlex.quote(str(lock.path))} {root}{_LOCK_INSIDE}
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            chroot {root} /bin/sh -euc {shlex.quote("umask 022; " + inside)}
    """
    namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    return ["unshare", *namespaces, "sh", "-euc", script]
