"""Starting a lab's processes in their cgroups, and entering where they run."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lab.system import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailtrain.errors import LabError

HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

T = TypeVar("T")


def joining(doors: Sequence[Path]) -> str:
    """Shell lines by which a shell places itself, and what it becomes, in cgroups."""
    return "\n".join(f"echo $$ > {shlex.quote(str(door))}" for door in doors)


def launch(doors: Sequence[Path], script: str, log: Path) -> None:
    """Start a shell script that ends with exec, in its own session, detached from this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    full = f"exec >> {shlex.quote(str(log))} 2>&1 < /dev/null\n{joining(doors)}\n{script}"
    run(["setsid", "--fork", "sh", "-euc", full])


def wait_for(look: Callable[[], T | None], *, seconds: float, otherwise: Callable[[], LabError]) -> T:
    """What `look` gives as soon as it is not None; raises `otherwise()` when that takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise otherwise()
        time.sleep(0.05)


def last_lines(log: Path, count: int = 8) -> str:
    """The end of a log file, for an error message."""
    if not log.is_file():
        return "(no output)"
    return "\n  ".join(log.read_text(errors="replace").splitlines()[-count:])


def in_namespaces(init: int, argv: Sequence[str], *, doors: Sequence[Path]) -> list[str]:
    """A command that runs `argv` inside a host: its files, processes, network, name and limits."""
    enter = ["nsenter", "--target", str(init), "--mount", "--pid", "--net", "--uts", "--ipc", "--"]
    clean = ["env", "-i", f"PATH={HOST_PATH}", "HOME=/root", "LC_ALL=C.UTF-8", "USER=root"]
    script = f'{joining(doors)}\nexec "$@"'
    return ["sh", "-euc", script, "sh", *enter, *clean, *argv]


def on_control(daemon: int, argv: Sequence[str], *, doors: Sequence[Path], cwd: Path) -> list[str]:
    """A command that runs `argv` on the control side, in this directory, environment and terminal."""
    inner = ["sh", "-euc", 'cd "$1"; shift; exec "$@"', "sh", str(cwd), *argv]
    enter = ["nsenter", "--target", str(daemon), "--mount", "--net", "--"]
    return ["sh", "-euc", f'{joining(doors)}\nexec "$@"', "sh", *enter, *inner]


def init_of(pids: set[int]) -> int | None:
    """Which of these processes is process 1 of a PID namespace below this one."""
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    return None


def search_path(own_bin: Path, lab_bin: Path) -> str:
    """PATH on the control side: this Python's programs, then the lab's tailscale, then what PATH was."""
    parts = [str(own_bin), str(lab_bin), *os.environ.get("PATH", HOST_PATH).split(":"), "/usr/sbin", "/sbin"]
    return ":".join(dict.fromkeys(part for part in parts if part))
