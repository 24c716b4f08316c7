"""A project of its own whose training is measured: deployed as anybody would, watched from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tailtrain.planning import layout
from tests.bench.project import CHECKOUT, DEPLOY, DEPLOYED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.lab import Lab
    from tests.bench.train.hosts import Hosts

_LOOK_SECONDS = 0.2
_NEVER = 10**12
_METHODS = {"resource_allocation": "swarm_topology_optimizer", "load_balancing": "health_weighted"}


class Fleet:
    """The project folder, and the training that is deployed from it."""

    def __init__(self, lab: Lab, hosts: Hosts, folder: Path) -> None:
        self.lab, self.hosts, self.folder = lab, hosts, folder
        self._log = folder / "deploy.log"

    def make(self, protocol: str, round_seconds: float, **settings: object) -> None:
        """Declare the lab's hosts and a training without end; what was learned stays.

        Args:
            protocol: who averages with whom.
            round_seconds: of a round's training.
            settings: other names of group data; the methods are the specification's where they say nothing.
        """
        for name in DEPLOYED:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.copytree(CHECKOUT / name, self.folder / name)
        shutil.copy(CHECKOUT / "config.py", self.folder)
        shutil.copy(self.lab.state.inventory, self.folder / "inventory.py")
        kept = self.folder / ".tailtrain"
        kept.mkdir(exist_ok=True)
        if not (kept / "demo").exists():
            (kept / "demo").symlink_to(CHECKOUT / ".tailtrain" / "demo")
        values = {"coordination_protocol": protocol, **_METHODS, **settings}
        lines = [f"{name} = {value!r}" for name, value in values.items()]
        # Another seed is another run: nothing is resumed.
        training = {"target_tokens": _NEVER, "round_seconds": round_seconds, "seed": int(time.time())}
        with (self.folder / "group_data" / "all.py").open("a") as file:
            file.write("\n" + "\n".join([*lines, f"training = {{**training, **{training!r}}}"]) + "\n")

    def distribute(self) -> None:
        """Install everything and bring the data, without training."""
        for name in ("provision", "distribute"):
            self.typed("pyinfra", "-y", "inventory.py", f"deploys/{name}.py")

    @contextmanager
    def training(self) -> Iterator[None]:
        """Deploy it, from the first round on with the hosts' shares of the processors; stopped in the end."""
        self.hosts.lift()
        deploy = self._begin()
        try:
            self.until(lambda: self.state() in {"training", "averaging"}, 300, "the first round", deploy)
            self.hosts.limit()
            yield
        finally:
            if deploy.poll() is None:
                os.killpg(deploy.pid, signal.SIGKILL)
            deploy.wait()
            self.hosts.lift()
            self.typed("tailtrain", "stop")
            self.hosts.limit()

    def _begin(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self.lab.control_command(DEPLOY, cwd=self.folder),
                env=self.lab.control_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def typed(self, *argv: str) -> str:
        """A command on the control side, in the project's folder; what it said.

        Raises:
            RuntimeError: it failed; with the end of what it said.
        """
        done = self.lab.on_control(argv, cwd=self.folder, check=False, timeout=600)
        said = done.stdout + done.stderr
        if done.returncode != 0:
            message = f"{' '.join(argv)} failed; it ended:\n{said[-4000:]}"
            raise RuntimeError(message)
        return said

    def until(
        self,
        happened: Callable[[], bool],
        seconds: float,
        what: str,
        deploy: subprocess.Popen[bytes] | None = None,
    ) -> float:
        """Wait; the time (unix seconds) at which it happened.

        Raises:
            RuntimeError: it takes too long, or the deploy ended; with the end of what the deploy said.
        """
        deadline = time.monotonic() + seconds
        while not happened():
            ended = deploy is not None and deploy.poll() is not None
            if ended or time.monotonic() > deadline:
                end = self._log.read_text(errors="replace")[-3000:]
                when = "before the deploy ended" if ended else f"within {seconds:g} s"
                message = f"no {what} {when}:\\n{end}"
                raise RuntimeError(message)
            time.sleep(_LOOK_SECONDS)
        return time.time()

    def state(self, host: str | None = None) -> str:
        """What a host's worker says it does; the primary's where no host is named."""
        return str(self.status(host).get("state", ""))

    def status(self, host: str | None = None) -> dict[str, Any]:
        """status.json of the run at hand; empty where there is none yet."""
        text = self.hosts.read(host or self.hosts.names[0], f"{self._run(host)}/status.json")
        return dict(json.loads(text)) if text else {}

    def rounds(self, host: str | None = None) -> list[dict[str, Any]]:
        """What a host wrote of the rounds so far."""
        text = self.hosts.read(host or self.hosts.names[0], f"{self._run(host)}/progress.jsonl")
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for_rounds(self, count: int, seconds: float, host: str | None = None) -> list[dict[str, Any]]:
        """Until a host has averaged so many rounds; what it wrote of them."""
        self.until(lambda: len(self.rounds(host)) >= count, seconds, f"{count} rounds")
        return self.rounds(host)

    def _run(self, host: str | None) -> str:
        config = self.hosts.read(host or self.hosts.names[0], layout.CONFIG)
        return layout.run(json.loads(config)["run_id"]) if config else "/nowhere"
