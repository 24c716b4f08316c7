"""Worker processes on this machine, each with its part of a processor: the product's own programs."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lab import cgroups
from lab.processes import joining
from tests.bench.project import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKER = CHECKOUT / ".worker-venv" / "bin"
_GROUP = "tailtrain-bench-quality"
_LOOK_SECONDS = 0.1


class Node:
    """One node: a state folder, and the programs that run on it.

    Args:
        folder: its own; the configuration is in it.
        document: worker.json.
    """

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self.name, self.folder = str(document["node"]), folder
        self._config = folder / "worker.json"
        self._run = folder / "runs" / document["run_id"]
        self._place = f"{folder.parent.name}-{self.name}"
        self._config.write_text(json.dumps(document))

    @property
    def status(self) -> dict[str, Any]:
        """What it says of itself; empty before it says anything."""
        try:
            return dict(json.loads((self._run / "status.json").read_bytes()))
        except OSError:
            return {}

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """What it wrote of the rounds."""
        return [json.loads(line) for line in (self._run / "progress.jsonl").read_text().splitlines()]

    @contextmanager
    def training(self) -> Iterator[subprocess.Popen[bytes]]:
        """The worker, in a cgroup of its own, which ends with the block."""
        doors = cgroups.create(_GROUP, self._place)
        with (self.folder / "train.log").open("wb") as log:
            command = shlex.join(self._command("train"))
            process = subprocess.Popen(
                ["sh", "-euc", f"{joining(doors)}\nexec {command}"],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            cgroups.kill(_GROUP, self._place)
            process.wait()

    def limit(self, cores: float) -> None:
        """From now on it has this much of a processor."""
        cgroups.set_cpu_quota(_GROUP, self._place, cores)

    def until(self, *states: str, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait until its status says one of these.

        Raises:
            RuntimeError: it takes too long, or the process failed; with the end of what it said.
        """
        deadline = time.monotonic() + seconds
        while self.status.get("state") not in states:
            if process.poll() or time.monotonic() > deadline:
                said = (self.folder / "train.log").read_text(errors="replace")[-2000:]
                message = f"{self.name} is not {' or '.join(states)}: {self.status}\n{said}"
                raise RuntimeError(message)
            time.sleep(_LOOK_SECONDS)

    def losses(self, nodes: list[Node]) -> dict[str, float]:
        """Aggregate and validate as the product does; the held-out loss by domain.

        Args:
            nodes: all nodes of the run, this one among them.
        """
        reports = {"nodes": {node.name: node.status for node in nodes}}
        self._do("aggregate", json.dumps(reports).encode())
        self._do("validate")
        document = json.loads((self._run / "validation.json").read_bytes())
        return {domain: float(found["loss"]) for domain, found in document["domains"].items()}

    def _do(self, name: str, given: bytes = b"") -> None:
        done = subprocess.run(
            self._command(name), cwd=CHECKOUT, input=given, capture_output=True, check=False, timeout=300
        )
        if done.returncode != 0:
            message = f"{name} failed on {self.name}: {done.stderr.decode(errors='replace')[-2000:]}"
            raise RuntimeError(message)

    def _command(self, name: str) -> list[str]:
        return [
            *("env", "OMP_NUM_THREADS=1", f"PYTHONPATH={CHECKOUT}", str(WORKER / "python")),
            *("-m", "tailtrain.worker", name, "--config", str(self._config)),
        ]


def clear() -> None:
    """End all that still runs of any node, and remove the nodes' cgroups."""
    cgroups.kill(_GROUP)
