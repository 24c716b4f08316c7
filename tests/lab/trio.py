"""Three small hosts and a storage backend beside them, which may be broken as well."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.lab.pair import CHUNKS, CONFIG, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

CONTROL_ADDRESS = "100.64.0.1"
HOSTS = ("alpha", "beta", "gamma")
CREDENTIALS = "/etc/tailtrain/storage.conf"
_SHORT = (200, 900)  # bytes
_FEW = 900  # records
_INVENTORY = """\
primary = [("@tailscale/alpha", {"cores": 3, "ram_gb": 4, "storage_gb": 10})]
compute = [
    ("@tailscale/beta", {"cores": 2, "ram_gb": 4, "storage_gb": 10}),
    ("@tailscale/gamma", {"cores": 2, "ram_gb": 4, "storage_gb": 10}),
]
"""


class Trio(Pair):
    """A lab of three hosts, and the folder in which a person types commands."""

    def __init__(self, folder: Path, name: str = "trio") -> None:
        super().__init__(folder, name, _INVENTORY)
        self.set("target_tokens", "150_000")

    def use(self, backend: str, storage: Mapping[str, object], options: Mapping[str, str]) -> None:
        """Declare a storage backend, its remote `fleet` in variables alone."""
        path = self.folder / "group_data" / "all.py"
        text = re.sub(r"(?m)^storage = .*\n", "", path.read_text())
        text = re.sub(r"(?m)^storage_backend = .*$", f"storage_backend = {backend!r}", text)
        path.write_text(f"{text}\nstorage = {dict(storage)!r}\n" if storage else text)
        self.environment = {f"RCLONE_CONFIG_FLEET_{name.upper()}": value for name, value in options.items()}

    def deploy(self, *deploys: str, code: int = 0) -> str:
        """What pyinfra says, on these deploys of the project."""
        files = (f"deploys/{name}.py" for name in deploys)
        return self.said(code, "pyinfra", "-y", "inventory.py", *files)

    def plan(self) -> dict[str, Any]:
        """The plan as a document."""
        done = self.run("tailtrain", "plan", "--json")
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def progress(self, host: str) -> list[dict[str, Any]]:
        """What a host's worker wrote of the rounds so far."""
        run = json.loads(self.on(host, f"cat {CONFIG}"))["run_id"]
        text = self.on(host, f"cat /var/lib/tailtrain/runs/{run}/progress.jsonl 2>/dev/null; true")
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def train_for(self, seconds: float) -> None:
        """Declare as many tokens as these hosts train in about so long, by a short run of another seed."""
        self.set("target_tokens", "30_000")
        self.set("seed", "1")
        self.deploy("train")
        last = self.progress(HOSTS[0])[-1]["group"]
        self.set("target_tokens", str(int(seconds * sum(member["tokens_per_second"] for member in last))))
        self.set("seed", "2")

    def wait_for_round(self, number: int, seconds: float = 120) -> None:
        """Until the primary has averaged this round."""
        self.wait_for(lambda rounds: any(each["round"] >= number for each in rounds), seconds)

    def wait_for(self, wanted: Callable[[list[dict[str, Any]]], bool], seconds: float = 400) -> None:
        """Until this holds of the rounds as the primary wrote them down."""
        deadline = time.monotonic() + seconds
        while not wanted(rounds := self.progress(HOSTS[0])):
            assert time.monotonic() < deadline, rounds[-1:]
            time.sleep(0.5)

    def declare_small_data_set(self) -> int:
        """Declare one data set of short texts, of which an epoch takes half a minute; its bytes."""
        texts = pq.read_table(self.folder / ".tailtrain" / "demo" / "prose.parquet").column("text")
        short = [text for text in texts.to_pylist() if _SHORT[0] < len(text) < _SHORT[1]][:_FEW]
        pq.write_table(pa.table({"text": short}), self.folder / "short.parquet")
        path = self.folder / "group_data" / "all.py"
        text = re.sub(r"(?ms)^datasets = \{.*?^\}", 'datasets = {"short": "short.parquet"}', path.read_text())
        path.write_text(text)
        return sum(len(text.encode()) for text in short)

    def lose_chunks(self, host: str, count: int) -> None:
        """Remove some of a host's chunks, always the first."""
        self.on(host, f"cd {CHUNKS} && ls | head -{count} | xargs rm")

    def served(self, said: str) -> dict[str, dict[str, tuple[int, float]]]:
        """What a deploy said of where chunks came from: by host and source, their number and kilobytes."""
        found: dict[str, dict[str, tuple[int, float]]] = {}
        for line in said.splitlines():
            name, _, rest = line.strip().partition(": ")
            if name in HOSTS:
                for number, size, unit, source in re.findall(
                    r"([\d,]+) chunks? \(([\d.,]+) (kB|MB)\) from ([^,]+)", rest
                ):
                    kilobytes = float(size.replace(",", "")) * (1 if unit == "kB" else 1000)
                    before = found.setdefault(name, {}).get(source, (0, 0.0))
                    count = int(number.replace(",", ""))
                    found[name][source] = (before[0] + count, before[1] + kilobytes)
        return found


def planned(document: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """How many chunks come from where, by host, as a plan's document has it."""
    found: dict[str, dict[str, int]] = {}
    for host in document["hosts"]:
        for each in host["sources"]:
            sums = found.setdefault(host["name"], {})
            sums[each["source"]] = sums.get(each["source"], 0) + each["chunks"]
    return found


def numbers(served: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, int]]:
    """The same of what a deploy said."""
    return {host: {source: int(each[0]) for source, each in by.items()} for host, by in served.items()}
