"""A project folder in which nothing is left to do: the demo's training, made short, deployed and finished."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.lab import Lab

CHECKOUT = Path(__file__).resolve().parents[2]
DEPLOYED = ("deploys", "templates", "locks", "group_data")
DEPLOY = ("pyinfra", "-y", "inventory.py", "deploys/train.py")
NOTHING_TO_DO = re.compile(r"^No changes: (\d+) hosts?\b", re.MULTILINE)

Completed = subprocess.CompletedProcess[str]


class Project:
    """The folder, and what is typed in it on the lab's control side."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder

    def make(self) -> None:
        """Copy the checkout's deploys and inventory here, with a short training; what was learned stays."""
        for name in DEPLOYED:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.copytree(CHECKOUT / name, self.folder / name)
        for name in ("inventory.py", "config.py"):
            shutil.copy(CHECKOUT / name, self.folder)
        kept = self.folder / ".tailtrain"
        kept.mkdir(exist_ok=True)
        if not (kept / "demo").exists():
            (kept / "demo").symlink_to(CHECKOUT / ".tailtrain" / "demo")
        self._set("target_tokens", "120_000")
        self._set("round_seconds", "6.0")

    def finish(self) -> None:
        """Deploy until there is nothing left to do.

        Raises:
            RuntimeError: with the end of what the deploy said, where it fails or never comes to rest.
        """
        for _ in range(3):
            done = self.run(*DEPLOY, timeout=900)
            said = done.stdout + done.stderr
            if done.returncode != 0:
                raise RuntimeError(said[-4000:])
            if NOTHING_TO_DO.search(said):
                return
        message = f"a deploy is never without changes; the last one ended:\n{said[-4000:]}"
        raise RuntimeError(message)

    def run(self, *argv: str, timeout: int = 300) -> Completed:
        """A command on the control side, in this folder."""
        return self.lab.on_control(argv, cwd=self.folder, check=False, timeout=timeout)

    def _set(self, name: str, value: str) -> None:
        path = self.folder / "group_data" / "all.py"
        path.write_text(re.sub(rf'("{name}": )[^,\n]+', rf"\g<1>{value}", path.read_text()))
