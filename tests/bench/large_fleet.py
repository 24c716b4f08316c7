"""A plan for very many hosts, none of them real: how long it takes, and how much memory.

    python -m tests.bench.large_fleet FOLDER --hosts 1000

The hosts answer the probe with what the probe found on this machine, changed to that of a node that was
provisioned but has nothing of the run yet. So every host gets a share, a configuration that names all others,
and chunks; what is measured is all of `tailtrain plan` but the network. Prints JSON: the seconds that it
took, by the clock and of processors, the most memory (bytes) that was in use, the exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailtrain.data import cache
from tailtrain.fleet import probe_program
from tailtrain.fleet.material import bundle
from tailtrain.fleet.probe import probe_request

PROJECT = Path(__file__).resolve().parents[2]
RECORDS = 50_000

INVENTORY = """
def _host(number):
    hardware = {{"cores": 2 + number % 15, "ram_gb": 4 + number % 61, "storage_gb": 100}}
    return f"@many/node{{number:04}}", hardware

_all = [_host(number) for number in range({count})]
primary = _all[:1]
compute = _all[1:]
"""
ENTRY_POINT = "[pyinfra.connectors]\nmany = tests.bench.many_hosts:ManyHosts\n"


def make(folder: Path, hosts: int) -> None:
    """Write a project with that many hosts, its data set cut already, and a tailnet in which they all are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("deploys", "templates", "locks"):
        (folder / name).symlink_to(PROJECT / name)
    (folder / "group_data").mkdir()
    settings = (PROJECT / "group_data" / "all.py").read_text()
    before, _, after = settings.partition("datasets = {")
    (folder / "group_data" / "all.py").write_text(
        f'{before}datasets = {{"natural": "texts.parquet"}}{after.partition("}")[2]}'
    )
    texts = [
        f"record {number}: " + "some words that are learned from " * (1 + number % 5)
        for number in range(RECORDS)
    ]
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
    cache.ensure_dataset(folder / "texts.parquet", "natural", folder / ".tailtrain" / "datasets")
    (folder / "reply.json").write_text(json.dumps(provisioned(folder)))
    (folder / "inventory.py").write_text(INVENTORY.format(count=hosts))
    (folder / "status.json").write_text(json.dumps(tailnet(hosts)))
    distribution = folder / "many_hosts-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: many-hosts\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text(ENTRY_POINT)


def provisioned(folder: Path) -> dict[str, Any]:
    """What the probe says of a node that was provisioned and has nothing else."""
    material = bundle(folder, None, None).material
    request: dict[str, Any] = json.loads(json.dumps(probe_request(material)))
    # Whatever this machine has in the places where a node has things is not looked at.
    nowhere = str(folder / "nothing")
    request["where"] = {name: f"{nowhere}{path}" for name, path in request["where"].items()}
    request["files"] = request["secrets"] = []
    found: dict[str, Any] = json.loads(json.dumps(probe_program.reply(request)).replace(nowhere, ""))
    return found | {
        "uid": 0,
        "account": "",
        "missing_packages": [],
        "environments": list(material.locks.values()),
        "codes": [material.code_id],
        "hardware": found["hardware"]
        | {
            "architecture": "x86_64",
            "python": "3.11",
            "systemd": True,
            "cores": 64,
            "memory_bytes": 2**38,
            "disk_free_bytes": 10**12,
        },
    }


def tailnet(hosts: int) -> dict[str, Any]:
    """A status document of the local daemon in which all hosts are."""

    def machine(name: str, number: int) -> dict[str, Any]:
        return {
            "ID": name,
            "HostName": name,
            "DNSName": f"{name}.many.ts.net.",
            "OS": "linux",
            "TailscaleIPs": [f"100.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"],
            "Online": True,
            "Active": True,
            "CurAddr": "192.0.2.1:41641",
        }

    peers = {f"nodekey:{number}": machine(f"node{number:04}", number + 2) for number in range(hosts)}
    return {"BackendState": "Running", "TUN": True, "Self": machine("control", 1), "Peer": peers}


# The command `tailtrain plan`, in a process that says at its end how much memory it had at most. (What the
# kernel reports to a parent counts the parent's own memory too.)
PLAN = """
import atexit, pathlib, sys
def note():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    pathlib.Path("peak").write_text(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
atexit.register(note)
from tailtrain.cli import main
main(["plan"], prog_name="tailtrain")
"""


def measure(folder: Path) -> dict[str, float]:
    """Run `tailtrain plan` there: its seconds, by the clock and of processors, peak memory, exit code."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "TAILTRAIN_STATUS_JSON": str(folder / "status.json"),
        "PYINFRA_PROGRESS": "off",
        "PYTHONPATH": f"{PROJECT}:{folder}",
    }
    argv = [sys.executable, "-c", PLAN]
    with (folder / "plan.txt").open("w") as said, (folder / "errors.txt").open("w") as complaints:
        started, before = time.monotonic(), os.times()
        done = subprocess.run(
            argv,
            check=False,
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=complaints,
            stdin=subprocess.DEVNULL,
        )
        seconds, after = time.monotonic() - started, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    peak = 1024 * int((folder / "peak").read_text())
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "bytes": peak,
        "exit_code": done.returncode,
    }


def main() -> None:
    """As the top says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hosts", type=int, default=1000)
    given = parser.parse_args()
    make(given.folder, given.hosts)
    print(json.dumps(measure(given.folder)))


if __name__ == "__main__":
    main()
