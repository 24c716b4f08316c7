"""Nodes of a divided model on loopback addresses: real supervisors, agents and ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tailtrain.worker.model import build_model, next_byte_loss
from tailtrain.worker.optimizer import AdamW
from tailtrain.worker.sharded.checkpoints import Checkpoints, State
from tailtrain.worker.sharded.config import load_sharded
from tailtrain.worker.sharded.source import ChunkSource
from tailtrain.worker.weights import FlatWeights

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.worker.sharded.layout import WholeModel

ROOT = Path(__file__).parents[2]
MODEL = {"layers": 6, "width": 32, "heads": 4, "context": 32}
BATCH, MICROBATCHES = 8, 4
MIB = 1 << 20
# Two cores that do other things too need long to import torch three times.
START = 120.0
# A layer is 12 x 32 x 32 + 32 x 32 multiplications per token, the head 256 x 32.
COSTS = {
    "layer_work": 13312.0, "head_work": 8192.0, "base_bytes": 320 * MIB, "layer_bytes": 300_000,
    "first_bytes": 220_000, "last_bytes": 200_000, "flight_bytes": 65_536, "layer_flight_bytes": 180_000,
    "last_flight_bytes": 200_000,
}  # fmt: skip


class ShardedFleet:
    """The nodes of a `Fleet`, each with all the data, run by the sharded engine.

    Args:
        fleet: gives folders, addresses and worker.json.
        speeds: of the nodes, in the order of their stages.
        steps: how many the run has.
    """

    def __init__(self, fleet: Any, speeds: tuple[float, ...], *, steps: int, **settings: Any) -> None:
        self.fleet, self.size = fleet, len(speeds)
        self.root: Path = fleet.root
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        whole: dict[str, list[Any]] = {}
        for config in fleet.configs:
            for domain in config["data"]:
                whole.setdefault(domain["domain"], []).extend(domain["ranges"])
        for config in fleet.configs:
            config["model"] = dict(MODEL)
            # At ten times this rate one process differs from itself: rounding is amplified without bound.
            config["training"] |= {
                "batch_size": BATCH,
                "learning_rate": 0.001,
                "target_tokens": steps * BATCH * MODEL["context"],
            }
            for domain in config["data"]:
                domain["ranges"], domain["others"] = sorted(whole[domain["domain"]]), {}
        names = [f"n{index}" for index in range(self.size)]
        self.common: dict[str, Any] = {
            "strategy": "pipelineParallel", "port": 45003, "beacon_port": 45004, "min_nodes": 2,
            "microbatches": MICROBATCHES, "checkpoint_steps": 10, "collective_timeout_seconds": 20,
            "checkpoint_nodes": 2, "rendezvous_order": names, "costs": COSTS,
            "nodes": [
                {
                    "node": f"n{index}", "address": fleet.configs[index]["coordination"]["address"],
                    "speed": speed, "memory_bytes": 8 << 30,
                }
                for index, speed in enumerate(speeds)
            ], **settings,
        }  # fmt: skip

    def write(self, index: int) -> Path:
        path = self.root / f"sharded{index}.json"
        worker = str(self.fleet.write_config(index))
        path.write_text(json.dumps({"worker_config": worker, **self.common}))
        return path

    def start(self, *indices: int) -> None:
        for index in indices or range(self.size):
            with (self.root / f"s{index}.log").open("ab") as log:
                self.processes[index] = subprocess.Popen(
                    [sys.executable, "-m", "tailtrain.worker.sharded", "run", "--config", self.write(index)],
                    cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip

    def command(self, index: int, module: str, name: str, content: bytes = b"") -> None:
        path = self.write(index) if module.endswith("sharded") else self.fleet.write_config(index)
        done = subprocess.run(
            [sys.executable, "-m", module, name, "--config", str(path)],
            cwd=ROOT, input=content, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()[-2000:]

    def kill(self, index: int) -> None:
        """The power cut, as far as a process can be cut: SIGKILL to the supervisor alone."""
        self.processes[index].kill()
        self.processes[index].wait()

    def stop(self, index: int, seconds: float = 20.0) -> int:
        self.processes[index].terminate()
        return self.processes[index].wait(seconds)

    def status(self, index: int) -> dict[str, Any]:
        return dict(self.fleet.status(index))

    def progress(self, index: int) -> list[dict[str, Any]]:
        return list(self.fleet.progress(index))

    def losses(self, index: int) -> dict[int, float]:
        """The loss of each round; of one that was done again, the last."""
        return {line["step"]: line["loss"] for line in self.progress(index)}

    def until(self, happened: Callable[[], bool], seconds: float, what: str) -> float:
        """Wait for it; the seconds that it took."""
        began = time.monotonic()
        while not happened():
            if time.monotonic() - began > seconds:
                logs = {i: (self.root / f"s{i}.log").read_text()[-2500:] for i in self.processes}
                states = {i: self.status(i) for i in range(self.size)}
                pytest.fail(f"not within {seconds} s: {what}; {states}; {logs}")
            time.sleep(0.1)
        return time.monotonic() - began

    def living(self, index: int) -> list[int]:
        """Processes of this node: supervisor, agent and rank are in one session."""
        session = self.processes[index].pid
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(entry.name)] if state != "Z" else []
            except OSError:
                continue
        return found

    def close(self) -> None:
        for index, process in self.processes.items():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.until(lambda index=index: not self.living(index), 60, f"n{index}'s processes are gone")  # type: ignore[misc]


def wait_all(fleet: ShardedFleet, seconds: float) -> list[int]:
    """The exit codes of all supervisors."""
    ends = time.monotonic() + seconds
    codes = []
    for index, process in fleet.processes.items():
        try:
            codes.append(process.wait(max(0.1, ends - time.monotonic())))
        except subprocess.TimeoutExpired:
            fleet.until(lambda: False, 0, f"n{index} ends")
    return codes


def reference(fleet: ShardedFleet, steps: int) -> dict[int, float]:
    """The losses of one process that has the whole model: the mean of each round, by its last step."""
    config = load_sharded(fleet.write(0))
    training = config.worker.training
    model = build_model(config.worker.model, config.worker.seed)
    weights = FlatWeights(model, torch.device("cpu"))
    optimizer = AdamW(weights.values, weights.decayed, training)
    source = ChunkSource(config.worker)
    rounds: dict[int, float] = {}
    losses = []
    for step in range(steps):
        windows = torch.from_numpy(source.batch(step).windows).long()
        weights.gradients.zero_()
        loss = next_byte_loss(model, windows)
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.update(
            weights.values, weights.gradients, step * config.tokens_per_step / training.target_tokens
        )
        if len(losses) == config.checkpoint_steps:
            rounds[step + 1] = sum(losses) / len(losses)
            losses = []
    return rounds


def write_checkpoint(store: Checkpoints, number: int, whole: WholeModel, *, finished: bool = False) -> State:
    """A checkpoint whose first tensor is its number."""
    files = store.begin(number)
    files.tensor("weights", next(iter(whole.shapes)))[:] = number
    hashes, digest = files.finish()
    state = State(number, number, {}, {}, finished=finished, committed_unix=1.0, weights_sha256=digest)
    store.publish(state, hashes)
    return state
