"""A project folder of its own on the control side of the lab, and what a person types there."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

    from lab.lab import Lab

CHECKOUT = Path(__file__).resolve().parents[2]
STATE = "/var/lib/tailtrain"
NODES = ("qfox", "architect", "judge", "ip-172-31-25-81", "netcup-router", "racknerd-510bd9c")


class Project:
    """A project folder of its own, with the checkout's deploys, and what a person types there."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        for name in ("deploys", "templates", "locks", "group_data"):
            shutil.copytree(CHECKOUT / name, folder / name)
        shutil.copy(CHECKOUT / "config.py", folder)
        # One of them by a login user with sudo, the others as root: there must be no difference.
        self.declare('"storage_gb": 500}', '"storage_gb": 500, "ssh_user": "deploy", "_sudo": True}')
        (folder / ".tailtrain").mkdir()
        (folder / ".tailtrain" / "demo").symlink_to(CHECKOUT / ".tailtrain" / "demo")
        self.set('"target_tokens": ', "250_000")
        self.set('"round_seconds": ', "8.0")
        # Cut in another way than the demo's, so that there is something to distribute.
        self.set("heldout_fraction = ", "0.03")

    def declare(self, before: str = "", after: str = "") -> None:
        """Write the checkout's inventory, with one text in it replaced by another."""
        text = (CHECKOUT / "inventory.py").read_text()
        assert before in text
        (self.folder / "inventory.py").write_text(text.replace(before, after) if before else text)

    def set(self, before: str, value: str) -> None:
        """Change a value in group_data/all.py."""
        path = self.folder / "group_data" / "all.py"
        text = path.read_text()
        changed = re.sub(re.escape(before) + r"[^,\n]+", before + value, text)
        assert changed != text or before + value in text, before
        path.write_text(changed)

    def run(self, *argv: str, timeout: int = 600) -> subprocess.CompletedProcess[str]:
        """A command on the control side, in the project's folder."""
        return self.lab.on_control(argv, cwd=self.folder, check=False, timeout=timeout)

    def deploy(self, *options: str, deploy: str = "train", timeout: int = 600) -> str:
        """Run pyinfra on a deploy; it has to succeed. What it said."""
        done = self.run("pyinfra", *options, "inventory.py", f"deploys/{deploy}.py", timeout=timeout)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-6000:]
        return said

    def until_interrupted(self, seconds: int, *argv: str) -> str:
        """Run a command, and after some time do as Ctrl-C does; it has to exit 130. What it said."""
        after = ("timeout", "--preserve-status", "--signal=INT", "--foreground", str(seconds))
        done = self.run(*after, *argv)
        said = done.stdout + done.stderr
        assert done.returncode == 130, said[-3000:]
        return said

    def plan(self, *options: str) -> tuple[int, str]:
        """`tailtrain plan`: its exit code and what it said."""
        done = self.run("tailtrain", "plan", *options)
        return done.returncode, done.stdout + done.stderr

    def on(self, host: str, script: str) -> str:
        """A shell line inside a host, as root."""
        return self.lab.host(host).run("sh", "-c", script).stdout

    def config(self, host: str) -> dict[str, Any]:
        """The worker.json of a host."""
        document: dict[str, Any] = json.loads(self.on(host, "cat /etc/tailtrain/worker.json"))
        return document

    def status(self, host: str) -> dict[str, Any]:
        """The worker's own word on a host; empty before it has said any."""
        run = self.config(host)["run_id"]
        text = self.on(host, f"cat {STATE}/runs/{run}/status.json 2>/dev/null || echo '{{}}'")
        document: dict[str, Any] = json.loads(text)
        return document

    def wait(self, host: str, seconds: float, **wanted: object) -> dict[str, Any]:
        """Until a worker's status has these values; a number means at least that."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status(host)
            fits = all(
                status.get(key, -1) >= value if isinstance(value, int) else status.get(key) == value
                for key, value in wanted.items()
            )
            if fits:
                return status
            assert time.monotonic() < deadline, f"{host}: {status}"
            time.sleep(1)


def report_of(project: Project) -> dict[str, Any]:
    run = project.config("qfox")["run_id"]
    document: dict[str, Any] = json.loads(
        (project.folder / ".tailtrain" / "runs" / run / "report.json").read_text()
    )
    return document
