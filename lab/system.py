"""Running programs, and what the machine must have for the lab."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tailtrain.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOOLS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "ssh": "openssh-client",
    "rsync": "rsync",
}
"""Programs that the lab runs, with the Debian package that has them."""

FOR_TESTS = {"serf": "serf"}
"""Programs that tests run on this machine itself, which a lab does without."""

_NEVER_RUN = {"serf": "serf.service"}
"""Units of packages that are installed for their programs alone: masked before the package comes."""

_INSTALL = "python -m lab install"
_TAIL_LINES = 15
_SBIN = ":/usr/sbin:/sbin"
"""Not on everybody's PATH, though most of these programs are there."""


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    fix: str | None = None,
) -> str:
    """Run a program and give what it printed to standard output.

    Raises:
        LabError: it failed; the message ends with its last lines.
    """
    environment = dict(os.environ if env is None else env)
    environment["PATH"] = environment.get("PATH", "/usr/bin:/bin") + _SBIN
    done = subprocess.run(
        list(argv),
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip().splitlines()[-_TAIL_LINES:]
        raise LabError(
            f"`{' '.join(argv[:4])}` failed with exit code {done.returncode}: " + "\n  ".join(said),
            fix=fix,
        )
    return done.stdout


def require_root() -> None:
    """Raise LabError unless this process is root."""
    if os.geteuid() != 0:
        raise LabError(
            "the lab boots hosts and makes network namespaces, which only root may do",
            fix=f"Type: sudo -E {' '.join(_own_command())}",
        )


def _own_command() -> list[str]:
    name = Path(sys.argv[0]).name
    start = [sys.executable, "-m", "lab"] if name == "__main__.py" else [sys.argv[0]]
    return [*start, *sys.argv[1:]]


def missing_packages(tools: Mapping[str, str] | None = None) -> list[str]:
    """The Debian packages that the lab needs and this machine lacks.

    Args:
        tools: the programs that are needed with their packages; None for those of the lab itself.
    """
    path = os.environ.get("PATH", "") + _SBIN
    needed = TOOLS if tools is None else tools
    missing = {package for tool, package in needed.items() if shutil.which(tool, path=path) is None}
    if not Path("/etc/ssl/certs/ca-certificates.crt").exists():
        missing.add("ca-certificates")
    if importlib.util.find_spec("ensurepip") is None:
        missing.add("python3-venv")
    return sorted(missing)


def to_install() -> list[str]:
    """The Debian packages that this machine lacks for the lab and for the tests."""
    return missing_packages({**TOOLS, **FOR_TESTS})


def require_tools() -> None:
    """Raise LabError when a program that the lab runs is missing."""
    packages = missing_packages()
    if packages:
        raise LabError(
            f"this machine lacks {', '.join(packages)}",
            fix=f"Type: {_INSTALL}   (or: sudo apt-get install -y {' '.join(packages)})",
        )
    if not Path("/dev/net/tun").exists():
        raise LabError("there is no /dev/net/tun, which tailscaled needs", fix="Type: sudo modprobe tun")


def install() -> list[str]:
    """Install what the lab and the tests lack with apt-get, as root or through sudo; gives the packages.

    Raises:
        LabError: neither root nor sudo, or apt-get failed.
    """
    packages = to_install()
    if not packages:
        return []
    if shutil.which("apt-get") is None:
        raise LabError(
            "the lab runs on Debian, and this machine has no apt-get",
            fix=f"Install these yourself: {', '.join(sorted(TOOLS))}.",
        )
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if sudo and shutil.which("sudo") is None:
        raise LabError(
            f"this machine lacks {', '.join(packages)}, and there is no sudo to install them",
            fix=f"As root, type: apt-get install -y {' '.join(packages)}",
        )
    for unit in (unit for package, unit in _NEVER_RUN.items() if package in packages):
        # By the files alone, so that it works in a container without a running systemd too.
        if shutil.which("systemctl"):
            run([*sudo, "systemctl", "--root=/", "mask", unit])
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        run([*sudo, *environment, "apt-get", "-q", *arguments])
    return packages
