"""Two or three small hosts of their own and a project for them: deploys are quick here, and may be broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lab.lab import Lab
from lab.settings import Settings
from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRIMARY, OTHER = "alpha", "beta"
CONFIG = "/etc/tailtrain/worker.json"
CHUNKS = "/var/lib/tailtrain/chunks"
_INVENTORY = """\
primary = [("@tailscale/alpha", {"cores": 3, "ram_gb": 4, "storage_gb": 10})]
compute = [("@tailscale/beta", {"cores": 2, "ram_gb": 4, "storage_gb": 10})]
"""


class Pair:
    """A small lab, and the folder in which a person types commands.

    Attributes:
        environment: variables that are set where commands are typed, besides those of the lab.
    """

    def __init__(self, folder: Path, name: str = "pair", inventory: str = _INVENTORY) -> None:
        self.lab, self.folder = Lab(Settings(name=name)), folder
        self.environment: dict[str, str] = {}
        for part in ("deploys", "templates", "locks", "group_data"):
            shutil.copytree(PROJECT / part, folder / part)
        (folder / "inventory.py").write_text(inventory)
        shutil.copy(PROJECT / "config.py", folder)
        (folder / ".tailtrain").mkdir()
        (folder / ".tailtrain" / "demo").symlink_to(PROJECT / ".tailtrain" / "demo")
        self.spread("coordination_protocol", "decentralized")
        self.spread("resource_allocation", "declared_cores")
        self.spread("load_balancing", "static")
        self.set("round_seconds", "5.0")
        self.set("target_tokens", "60_000")
        self.set("learning_rate", "0.01")
        self.set("layers", "2")
        self.set("width", "64")
        self.set("context", "64")

    def spread(self, name: str, value: str) -> None:
        """Change a word of the specification in group_data/all.py."""
        path = self.folder / "group_data" / "all.py"
        text, number = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value!r}", path.read_text())
        assert number == 1, name
        path.write_text(text)

    def set(self, name: str, value: str) -> None:
        """Change a setting of the model or the training in group_data/all.py."""
        path = self.folder / "group_data" / "all.py"
        text, number = re.subn(rf'("{name}": )[^,}}]+', rf"\g<1>{value}", path.read_text())
        assert number == 1, name
        path.write_text(text)

    def run(self, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """A command on the control side, in the project's folder, without a terminal."""
        environment = {**self.lab.control_environment(), **self.environment}
        options = {"check": False, "timeout": 300, "env": environment, **options}
        return self.lab.on_control(argv, cwd=self.folder, **options)

    def said(self, code: int, *argv: str, **options: Any) -> str:
        """What a command says, that has to end with this exit code."""
        done = self.run(*argv, **options)
        said = done.stdout + done.stderr
        assert done.returncode == code, said[-6000:]
        return said

    def typed(self, code: int, answer: str, *argv: str) -> str:
        """What a command says at a terminal where a person types an answer."""
        return self.said(code, "script", "-qec", " ".join(argv), "/dev/null", input=f"{answer}\n", stdin=None)

    @contextmanager
    def in_the_background(self, *argv: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on; killed at the end if it still does, with all that it started."""
        with subprocess.Popen(
            self.lab.control_command(argv, cwd=self.folder),
            env={**self.lab.control_environment(), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            yield process
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    def on(self, host: str, script: str) -> str:
        """A shell line inside a host, as root."""
        return self.lab.host(host).run("sh", "-c", script).stdout

    def holder(self) -> dict[str, Any]:
        """The record of who holds the deploy lock, empty where nobody does."""
        text = self.on(PRIMARY, "cat /run/tailtrain/holder.json 2>/dev/null || echo '{}'")
        record: dict[str, Any] = json.loads(text)
        return record

    def wait_for_holder(
        self, deploy: subprocess.Popen[str], seconds: float = 60, *, other_than: int = 0
    ) -> dict[str, Any]:
        """Until a deploy in the background holds the lock, with another process than this one."""
        deadline = time.monotonic() + seconds
        while True:
            record = self.holder()
            if record and record["pid"] != other_than:
                return record
            assert deploy.poll() is None, deploy.communicate()[0][-3000:]
            assert time.monotonic() < deadline, "nobody took the lock"
            time.sleep(0.2)

    def remove_a_chunk(self, host: str) -> str:
        """Remove one of a host's chunks, so that there is something quick to do; its path there."""
        return self.on(host, f"set -- {CHUNKS}/????*; rm $1; echo $1").strip()
