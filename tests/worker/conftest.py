"""A small fleet of real worker processes on loopback addresses, with a tiny chunk store each."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("torch", reason="needs the worker environment")

import pyarrow.parquet as pq  # noqa: E402

from tailtrain.fleet.identity import new_identity  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
RCLONE = Path(sys.executable).with_name("rclone")
RUN_ID = "0123456789abcdef"
_fleets = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.worker)


def words(count: int, seed: int) -> list[str]:
    """Records of a tiny repetitive language."""
    choose = random.Random(seed)  # noqa: S311 - the same records each time
    vocabulary = ["the node", "trains", "a model", "with peers", "and averages", "every round"]
    return [" ".join(choose.choices(vocabulary, k=choose.randint(3, 9))) + "." for _ in range(count)]


def code(count: int, seed: int) -> list[str]:
    """Records of another domain; some are long."""
    choose = random.Random(seed)  # noqa: S311 - the same records each time
    return [
        "\n".join(
            f"def f{choose.randint(0, 9)}(x):\n    return x + {choose.randint(0, 9)}"
            for _ in range(choose.randint(1, 30))
        )
        for _ in range(count)
    ]


def write_chunks(directory: Path, texts: list[str], rows: int) -> list[dict[str, Any]]:
    """Chunk files of `rows` records; their entries for a manifest."""
    entries = []
    for first in range(0, len(texts), rows):
        part = texts[first : first + rows]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": part, "source": ["test"] * len(part)}), sink)
        content = sink.getvalue().to_pybytes()
        name = hashlib.sha256(content).hexdigest()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
        entries.append({"sha256": name, "bytes": len(content), "rows": len(part)})
    return entries


def write_data_set(state_dir: Path, domain: str, texts: list[str], rows: int = 20) -> dict[str, Any]:
    """Chunks and manifest of one data set in a node's state directory; a tenth is held out.

    Gives the domain's entry of worker.json with all training rows, in the order in which they are shared out.
    """
    held = {text for text in texts if hashlib.sha256(text.encode()).digest()[0] < 26}
    training = [text for text in texts if text not in held]
    train = write_chunks(state_dir / "chunks", training, rows)
    heldout = write_chunks(state_dir / "chunks", [text for text in texts if text in held], rows)
    counts = [0] * 256
    for byte in "".join(training).encode():
        counts[byte] += 1
    manifest = {
        "format": 1, "domain": domain, "file": f"{domain}.parquet", "file_sha256": "0" * 64, "file_bytes": 1,
        "records": len(texts), "text_column": "text", "columns": [["text", "string"], ["source", "string"]],
        "heldout_fraction": 0.1, "train": train, "heldout": heldout,
        "train_records": len(training), "heldout_records": len(texts) - len(training),
        "train_text_bytes": sum(counts), "heldout_text_bytes": 1, "byte_counts": counts,
    }  # fmt: skip
    content = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    name = hashlib.sha256(content).hexdigest()
    (state_dir / "manifests").mkdir(exist_ok=True)
    (state_dir / "manifests" / f"{name}.json").write_bytes(content)
    return {
        "domain": domain,
        "manifest": name,
        "ranges": sorted([entry["sha256"], 0, entry["rows"]] for entry in train),
        "others": {},
        "heldout": [entry["sha256"] for entry in heldout],
    }


class Fleet:
    """Nodes `n0` (primary), `n1`, ... on loopback addresses of their own."""

    def __init__(
        self,
        root: Path,
        size: int,
        *,
        protocol: str,
        quorum: int,
        records: tuple[int, int] = (400, 60),
        rows: int = 20,
        **training: Any,
    ) -> None:
        self.root, self.size = root, size
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        block = f"127.{1 + os.getpid() % 200}.{next(_fleets) % 250}"
        identities = [new_identity() for _ in range(size)]
        self.configs: list[dict[str, Any]] = []
        for index, (key, _) in enumerate(identities):
            state = self.state(index)
            state.mkdir(parents=True)
            (state / "identity.key").write_bytes(key)
            domains = [
                write_data_set(state, "natural", words(records[0], 1), rows),
                write_data_set(state, "code", code(records[1], 2), rows),
            ]
            for domain in domains:
                whole = domain["ranges"]
                domain["ranges"] = whole[index::size]
                domain["others"] = {
                    f"n{other}": [[at, 0, at, whole[at][2]] for at in range(other, len(whole), size)]
                    for other in range(size)
                    if other != index
                }
            self.configs.append({
                "run_id": RUN_ID, "node": f"n{index}", "role": "compute" if index else "primary", "seed": 17,
                "device": "cpu", "threads": 1, "usable_cores": 1.0, "state_dir": str(state),
                "model": {"layers": 2, "width": 32, "heads": 2, "context": 32},
                "training": {
                    "batch_size": 4, "learning_rate": 0.01, "weight_decay": 0.1, "warmup_steps": 5,
                    "round_seconds": 2.0, "averaging_timeout_seconds": 15.0, "target_tokens": 100_000_000,
                    "outer_learning_rate": 1.0, "outer_momentum": 0.0, "start_timeout_seconds": 60.0,
                    "keep_checkpoints": 2, "fault_tolerance": True, "checkpoint_rounds": 1,
                    "steps_per_round": 0, "health_weighted": True, **training,
                },
                "coordination": {
                    "protocol": protocol, "address": f"{block}.{index + 1}", "port": 45001, "quorum": quorum,
                    "all_each": 1, "compression": "none", "reducers": {}, "gossip": None,
                    "made_of": {"code": "c0de", "data": "da7a", "plan": "91a9"},
                    "peers": [
                        {
                            "node": f"n{other}", "role": "compute" if other else "primary",
                            "address": f"{block}.{other + 1}", "port": 45001, "peer_id": identities[other][1],
                        }
                        for other in range(size) if other != index
                    ],
                },
                "data": domains,
                "storage": {
                    "chunk_port": 45002, "rclone": str(RCLONE), "remote": None,
                },
                "validation": {"bytes_per_domain": 2000},
            })  # fmt: skip

    def state(self, index: int) -> Path:
        return self.root / f"n{index}"

    def chunks(self, index: int) -> Path:
        return self.state(index) / "chunks"

    def run_dir(self, index: int) -> Path:
        return self.state(index) / "runs" / str(self.configs[index]["run_id"])

    def write_config(self, index: int) -> Path:
        path = self.root / f"n{index}.json"
        path.write_text(json.dumps(self.configs[index]))
        return path

    def start(self, *indices: int) -> None:
        for index in indices or range(self.size):
            log = (self.root / f"n{index}.log").open("ab")
            self.processes[index] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tailtrain.worker",
                    "train",
                    "--config",
                    str(self.write_config(index)),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            log.close()

    def command(self, index: int, name: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        arguments = [
            sys.executable,
            "-m",
            "tailtrain.worker",
            name,
            "--config",
            str(self.write_config(index)),
        ]
        return subprocess.run(
            arguments, cwd=ROOT, input=content, capture_output=True, timeout=120, check=False
        )

    def kill(self, index: int) -> None:
        """The power cut: all processes of the node at once."""
        os.killpg(self.processes[index].pid, signal.SIGKILL)
        self.processes[index].wait()

    def stop(self, index: int, seconds: float = 15.0) -> int:
        """SIGTERM to the main process alone; its exit code."""
        self.processes[index].terminate()
        return self.processes[index].wait(seconds)

    def wait(self, seconds: float, *indices: int) -> list[int]:
        ends = time.monotonic() + seconds
        return [
            self.processes[index].wait(max(0.1, ends - time.monotonic()))
            for index in indices or range(self.size)
        ]

    def status(self, index: int) -> dict[str, Any]:
        try:
            return dict(json.loads((self.run_dir(index) / "status.json").read_bytes()))
        except FileNotFoundError:
            return {"state": "none", "round": -1}

    def progress(self, index: int) -> list[dict[str, Any]]:
        try:
            lines = (self.run_dir(index) / "progress.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def until(self, happened: Callable[[], bool], seconds: float, what: str) -> None:
        ends = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > ends:
                logs = {i: (self.root / f"n{i}.log").read_text()[-1500:] for i in self.processes}
                states = {i: self.status(i) for i in range(self.size)}
                pytest.fail(f"not within {seconds} s: {what}; {states}; {logs}")
            time.sleep(0.1)

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def make_fleet(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    fleets: list[Fleet] = []

    def make(size: int = 2, *, protocol: str = "decentralized", quorum: int = 2, **training: Any) -> Fleet:
        fleets.append(
            Fleet(tmp_path / f"fleet{len(fleets)}", size, protocol=protocol, quorum=quorum, **training)
        )
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Fleet, int], None]]:
    """Runs a node's chunk server, as its unit does."""
    servers: list[subprocess.Popen[bytes]] = []

    def start(fleet: Fleet, index: int) -> None:
        address = fleet.configs[index]["coordination"]["address"]
        arguments = ["serve", "http", "--read-only", "--addr", f"{address}:45002", str(fleet.chunks(index))]
        servers.append(
            subprocess.Popen([str(RCLONE), *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            with contextlib.suppress(OSError), socket.create_connection((address, 45002), 1.0):
                return
            time.sleep(0.1)
        pytest.fail("the chunk server does not listen")

    yield start
    for server in servers:
        server.kill()
        server.wait()
