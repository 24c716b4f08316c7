"""A lab as a whole: bringing it up, taking it down, and reaching into it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import cgroups, filters, hosts, network, state
from lab.bringup import Bringup, make_layers
from lab.cache import locked, prune, remove_tree
from lab.inventory import read_inventory
from lab.link import Link
from lab.processes import on_control, search_path, wait_for
from lab.progress import Progress
from lab.settings import CONTROL, Settings
from lab.system import require_root, require_tools
from lab.tailnet import Coordination
from lab.ways import wait_for_relay, way
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from lab.state import HostState, LabState
    from lab.ways import Way

_UP = "Type: python -m lab up"
_PRUNED = ("base", "binaries", "environment", "wheels", "go")
_KEPT_SECONDS = 14 * 86_400


class Lab:
    """One lab, up or down."""

    def __init__(self, settings: Settings | None = None, progress: Progress | None = None) -> None:
        self.settings = settings or Settings.from_environment()
        self.coordination = Coordination(self.settings)
        self._progress = progress or Progress()

    def up(
        self,
        inventory: Path,
        *,
        bare: Sequence[str] = (),
        wheels: Path | None = None,
        fresh: bool = False,
    ) -> LabState:
        """Make the lab what the inventory says; changes nothing where it is so already.

        Args:
            inventory: a pyinfra inventory file.
            bare: hosts that get no worker environment.
            wheels: a folder with the wheels that no index has.
            fresh: take a running lab down first.

        Raises:
            LabError: not root, a tool is missing, the inventory is wrong, or a part does not come up.
        """
        specs = read_inventory(inventory)
        if unknown := set(bare) - {spec.name for spec in specs}:
            raise LabError(f"no host {', '.join(sorted(unknown))} in the inventory", field="--bare")
        self._require()
        require_tools()
        if fresh:
            self.down()
        layers = make_layers(self.settings, wheels, self._progress)
        with self._locked():
            bringup = Bringup(self.settings, self.coordination, layers, self._progress)
            found = bringup.run(specs, inventory, frozenset(bare))
        self._prune()
        return found

    def down(self) -> None:
        """Take everything of this lab off the machine; the caches stay.

        Raises:
            LabError: not root, or a process does not end.
        """
        self._require()
        settings = self.settings
        with self._locked():
            cgroups.kill(settings.cgroup)
            for place in sorted(network.present(settings)):
                network.remove(settings, place)
            remove_tree(settings.state)
            if settings.state_root.is_dir() and not any(settings.state_root.iterdir()):
                settings.state_root.rmdir()

    def _prune(self) -> None:
        """Remove what was made for earlier lock files or sources and is not used by any lab."""
        names = [path.name for path in self.settings.state_root.iterdir() if path.is_dir()]
        states = [state.load(replace(self.settings, name=name)) for name in names]
        in_use = [
            Path(path)
            for found in states
            if found is not None
            for path in (found.binaries, found.wheels, *(p for h in found.hosts.values() for p in h.layers))
        ]
        for gone in prune(self.settings.cache, _PRUNED, in_use, older_than=_KEPT_SECONDS):
            self._progress.say(f"removed {gone}, which was not used for {_KEPT_SECONDS // 86_400} days")

    def _locked(self) -> AbstractContextManager[None]:
        return locked(
            self.settings.lock_file,
            lambda: self._progress.say("Another command is changing this lab; waiting for it ..."),
        )

    def _require(self) -> None:
        require_root()
        if state.inside(self.settings):
            raise LabError(
                "this command runs inside the lab", fix="Type it in a shell of the machine itself."
            )

    @property
    def state(self) -> LabState:
        """What is recorded of the running lab; raises LabError when it is down."""
        found = state.load(self.settings)
        if found is None:
            raise LabError("the lab is down", fix=_UP)
        return found

    def control_command(self, argv: Sequence[str], *, cwd: Path | None = None) -> list[str]:
        """The command that runs `argv` on the control side; give it `control_environment`.

        Raises:
            LabError: the lab is down.
        """
        daemon = self.state.control
        if daemon is None or not daemon.alive:
            raise LabError("the lab's control side is not running", fix=_UP)
        doors = cgroups.entrance(self.settings.cgroup, CONTROL)
        return on_control(daemon.pid, argv, doors=doors, cwd=cwd or Path.cwd())

    def control_environment(self) -> dict[str, str]:
        """This process's environment, with this Python's programs and the lab's tailscale found first."""
        own, programs = Path(sys.executable).parent, Path(self.state.binaries) / "usr/local/bin"
        return {**os.environ, "PATH": search_path(own, programs), "TAILTRAIN_LAB": self.settings.name}

    def on_control(
        self, argv: Sequence[str], *, cwd: Path | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the control side and give what it printed; `options` as for subprocess.run."""
        return _run(self.control_command(argv, cwd=cwd), {"env": self.control_environment(), **options})

    @property
    def link(self) -> Link:
        """The control side's link."""
        return Link(self.settings, CONTROL, 0)

    def slow_down(self, seconds: float) -> None:
        """Delay what goes to and from the control side by this long in each direction; 0: not at all."""
        self.link.slow_down(seconds)

    def host(self, name: str) -> Host:
        """The host of this name; raises LabError when there is none."""
        if name not in self.state.hosts:
            raise LabError("no such host in the lab", host=name, expected=", ".join(self.state.hosts))
        return Host(self, name)


@dataclass(frozen=True)
class Host:
    """A host of a lab, to look into and to break."""

    lab: Lab
    name: str

    @property
    def state(self) -> HostState:
        """What is recorded of the host."""
        return self.lab.state.hosts[self.name]

    @property
    def address(self) -> str:
        """The host's address in the tailnet; raises LabError when it never joined."""
        address = self.state.address
        if address is None:
            raise LabError("the host has not joined the tailnet", host=self.name, fix=_UP)
        return address

    @property
    def running(self) -> bool:
        """Whether its process 1 runs."""
        return hosts.is_running(self.lab.settings, self.state)

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` inside the host as root, without SSH, under the host's limits."""
        return hosts.command(self.lab.settings, self.state, argv)

    def run(self, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command inside the host and give what it printed; `options` as for subprocess.run."""
        return _run(self.command(argv), options)

    def put(self, source: Path, destination: str) -> None:
        """Copy a directory or a file of this machine to a place on the host, where nothing may be yet."""
        if (init := self.state.init) is None or not self.running:
            raise LabError("the host is not running", host=self.name, fix=_UP)
        target = Path(f"/proc/{init.pid}/root") / destination.lstrip("/")
        if not source.is_dir():
            shutil.copy2(source, target)
            return
        skip = shutil.ignore_patterns("__pycache__", ".git", ".venv", ".*_cache")
        shutil.copytree(source, target, symlinks=True, ignore=skip)

    def power_cut(self) -> None:
        """Kill the host's every process at once, as when its power fails."""
        hosts.power_cut(self.lab.settings, self.name)

    def boot(self) -> None:
        """Switch the host on again after `power_cut`; returns when it is online in the tailnet.

        Raises:
            LabError: it does not come up.
        """
        settings = self.lab.settings
        with locked(settings.lock_file):
            booted = hosts.boot(settings, self.state, self.lab.state.wheels)
            state.save(settings, self.lab.state.with_host(booted))
        wait_for(
            lambda: True if self.online else None,
            seconds=60,
            otherwise=lambda: LabError("the host does not rejoin the tailnet", host=self.name),
        )
        hosts.limit(settings, booted)

    @property
    def online(self) -> bool:
        """Whether the coordination server holds a connection to the host."""
        node = self.lab.coordination.node(self.name)
        return node is not None and node.online

    @property
    def cpu_quota(self) -> float | None:
        """The cores' worth of time that the kernel limits the host to; None: no limit."""
        return cgroups.cpu_quota(self.lab.settings.cgroup, self.name)

    def set_cpu_quota(self, cores: float | None) -> None:
        """Limit the host to this many cores' worth of time, until the next `lab up`; None: no limit."""
        cgroups.set_cpu_quota(self.lab.settings.cgroup, self.name, cores)

    def cpu_seconds(self) -> float:
        """The processor time that the host has used since it was booted."""
        return cgroups.cpu_seconds(self.lab.settings.cgroup, self.name)

    @property
    def link(self) -> Link:
        """The host's link."""
        return Link(self.lab.settings, self.name, self.state.index)

    def cut_off(self, *peers: str) -> None:
        """Drop everything between the host and these hosts; without peers, the host and all others."""
        filters.cut_off(self.lab.settings, self.name, self._indices(peers))

    def relay(self, *peers: str) -> None:
        """Leave only the tailnet's relay between the host and these hosts; without peers, and everybody.

        Returns when they all use it, in both directions.

        Raises:
            LabError: there is no such peer, or the relay does not come to be used.
        """
        filters.relay(self.lab.settings, self.name, self._indices(peers))
        others = [self.lab.host(name) for name in peers or self.lab.state.hosts if name != self.name]
        there = [other for other in others if other.running]
        pairs = [(self.run, other.address) for other in there] + [(one.run, self.address) for one in there]
        if not peers:
            pairs.append((lambda *argv, **options: self.lab.on_control(argv, **options), self.address))
        wait_for_relay(pairs)

    def way_to(self, other: Host) -> Way | None:
        """How a ping through the tailnet gets to another host and back; None: it does not."""
        return way(self.run, other.address)

    def _indices(self, peers: Sequence[str]) -> dict[str, int] | None:
        return {peer: self.lab.host(peer).state.index for peer in peers} or None

    def slow_down(self, seconds: float) -> None:
        """Delay everything between the host and the rest of the lab by this long in each direction."""
        self.link.slow_down(seconds)

    def restore(self) -> None:
        """Undo every fault of the host's link."""
        self.link.restore()


def _run(argv: Sequence[str], options: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    defaults: dict[str, Any] = {
        "check": True,
        "capture_output": True,
        "text": True,
        "stdin": subprocess.DEVNULL,
    }
    return subprocess.run(argv, **{**defaults, **options})  # noqa: PLW1510 - `check` is among the defaults
