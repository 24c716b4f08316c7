"""The project whose data is pushed, and tailtrain's own deploy of it."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.planning import layout
from tests.bench.contenders import usual
from tests.bench.project import CHECKOUT, DEPLOYED

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from lab.lab import Lab

_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNITS = f"{layout.UNIT_DIR}/tailtrain-*"
_EVERYTHING = (layout.STATE_DIR, layout.CONFIG_DIR)


@dataclass(frozen=True)
class Added:
    """What it took to take one more host in.

    Attributes:
        moved: bytes of the chunks that hosts got.
        least: bytes of the records that have to move, and of the held-out chunks, which every host has.
        boundaries: how many of those chunks are not wholly needed: a share begins or ends within them.
        largest: bytes of the largest chunk.
        seconds: of the deploy.
    """

    moved: int
    least: int
    boundaries: int
    largest: int
    seconds: float


class Deployed:
    """A project folder with one data set, and what is typed in it on the lab's control side."""

    def __init__(self, lab: Lab, folder: Path, dataset: Path) -> None:
        self.lab, self.folder = lab, folder
        self._dataset = dataset

    @property
    def chunk_dir(self) -> Path:
        """Where the control side has the chunks."""
        return self.folder / ".tailtrain" / "datasets" / "chunks"

    def make(self) -> None:
        """Copy the checkout's deploys here, with one data set of one copy; what was cut stays."""
        for name in DEPLOYED:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.copytree(CHECKOUT / name, self.folder / name)
        shutil.copy(CHECKOUT / "config.py", self.folder)
        # One copy of each chunk, for the others send every byte once, too.
        with (self.folder / "group_data" / "all.py").open("a") as settings:
            settings.write(f'\ndatasets = {{"natural": {str(self._dataset)!r}}}\nreplicas = 1\n')

    def begin(self, hosts: Collection[str]) -> None:
        """Prepare these hosts as if they and this project had never heard of each other; no chunk is sent."""
        for name in self.lab.state.hosts:
            host = self.lab.host(name)
            host.run("sh", "-c", f"systemctl stop 'tailtrain-*'; rm -rf {' '.join(_EVERYTHING)} {_UNITS}")
            host.run("systemctl", "daemon-reload")
        for kept in (self.folder / ".tailtrain").glob("*"):
            if kept.name != "datasets":
                shutil.rmtree(kept)
        self.declare(hosts)
        self._deploy("provision")

    def declare(self, hosts: Collection[str]) -> None:
        """Write the inventory: the checkout's, with these hosts of it."""
        lines = (CHECKOUT / "inventory.py").read_text().splitlines(keepends=True)
        names = [re.search(r'"@tailscale/([^"]+)"', line) for line in lines]
        kept = [line for line, found in zip(lines, names, strict=True) if found is None or found[1] in hosts]
        (self.folder / "inventory.py").write_text("".join(kept))

    def forget_chunks(self) -> None:
        """Remove the chunks from all hosts, and the record of what was verified there."""
        for name in self.lab.state.hosts:
            script = (
                f"mkdir -p {layout.CHUNK_DIR} && find {layout.CHUNK_DIR} -mindepth 1 -delete && sync -f /"
            )
            self.lab.host(name).run("sh", "-c", script)

    def distribute(self) -> float:
        """Run deploys/distribute.py as it is typed; the seconds it took."""
        return self._deploy("distribute")[0]

    def unchanged(self) -> float:
        """The same where nothing is to be done; the seconds it took.

        Raises:
            RuntimeError: something was done.
        """
        before = self._chunks()
        seconds, said = self._deploy("distribute")
        if self._chunks() != before or "Data distribution: chunks" in said:
            message = f"chunks were sent again; it ended:\n{said[-3000:]}"
            raise RuntimeError(message)
        return seconds

    def shares(self) -> dict[str, list[str]]:
        """By host, the chunks that it has."""
        return {name: sorted(found) for name, found in self._chunks().items()}

    def add(self, hosts: Collection[str]) -> Added:
        """Take in the hosts that are not in the inventory yet, and give what it took."""
        before = self._chunks()
        self.declare(hosts)
        (planned,) = self._plan()["datasets"]
        seconds = self._deploy("provision")[0] + self._deploy("distribute")[0]
        new = {name: now.keys() - before[name].keys() for name, now in self._chunks().items()}
        manifests = self.folder / ".tailtrain" / "datasets" / "manifests"
        manifest = json.loads((manifests / f"{planned['manifest']}.json").read_text())
        train = {chunk["sha256"]: chunk for chunk in manifest["train"]}
        heldout = {chunk["sha256"]: chunk for chunk in manifest["heldout"]}
        moved = [(name, sha256) for name, chunks in new.items() for sha256 in chunks]
        bytes_of_train = sum(chunk["bytes"] for chunk in train.values())
        return Added(
            moved=sum((train | heldout)[sha256]["bytes"] for _, sha256 in moved),
            least=round(bytes_of_train * planned["least_moved"] / manifest["train_records"])
            + sum(heldout[sha256]["bytes"] for _, sha256 in moved if sha256 in heldout),
            boundaries=sum(
                stop - start < train[sha256]["rows"]
                for name, chunks in new.items()
                if chunks
                for sha256, start, stop in self._ranges(name)
                if sha256 in chunks
            ),
            largest=max(chunk["bytes"] for chunk in train.values()),
            seconds=seconds,
        )

    def _ranges(self, name: str) -> list[tuple[str, int, int]]:
        """The rows that a host owns: chunk, first, and the one after the last."""
        config = json.loads(self.lab.host(name).run("cat", layout.CONFIG).stdout)
        return [(sha256, start, stop) for data in config["data"] for sha256, start, stop in data["ranges"]]

    def _chunks(self) -> dict[str, dict[str, str]]:
        """By host, the chunks that it has, with what would change if they were written again."""
        script = f"cd {layout.CHUNK_DIR} 2>/dev/null && stat -c '%n %i %y' * || true"
        found = {}
        for name in self.lab.state.hosts:
            lines = self.lab.host(name).run("sh", "-c", script).stdout.splitlines()
            parts = (line.partition(" ") for line in lines)
            found[name] = {chunk: rest for chunk, _, rest in parts if _SHA256.fullmatch(chunk)}
        return found

    def _plan(self) -> dict[str, Any]:
        done = self.lab.on_control(["tailtrain", "plan", "--json"], cwd=self.folder, check=False)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def _deploy(self, name: str) -> tuple[float, str]:
        argv = ["pyinfra", "-y", "inventory.py", f"deploys/{name}.py"]
        started = time.perf_counter()
        done = self.lab.on_control(
            argv, cwd=self.folder, check=False, timeout=900, env=usual(self.lab.control_environment())
        )
        seconds = time.perf_counter() - started
        said = done.stdout + done.stderr
        if done.returncode != 0:
            message = f"deploys/{name}.py failed; it ended:\n{said[-4000:]}"
            raise RuntimeError(message)
        return seconds, said
