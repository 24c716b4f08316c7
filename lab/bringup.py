"""Bringing a lab up: comparing what is there with what the inventory wants, and mending the difference."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab import cgroups, hosts, network, state
from lab.base import base_system
from lab.binaries import binaries
from lab.environment import ROOT, choose_lock, environment_layer, wheelhouse
from lab.processes import on_control
from lab.progress import Progress, in_parallel
from lab.settings import CONTROL, SWITCH, Settings
from lab.shares import memory_limits, processor_quotas
from lab.state import HostState, LabState, Process
from lab.system import run
from lab.tailnet import CONTROL_NAME, Coordination, Node, ensure_control, log_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.inventory import HostSpec


@dataclass(frozen=True)
class Layers:
    """What hosts are made from."""

    base: Path
    binaries: Path
    environment: Path
    environment_id: str
    wheels: Path

    def of(self, *, bare: bool) -> tuple[str, ...]:
        """The layers of one host, topmost first."""
        top = () if bare else (str(self.environment),)
        return (*top, str(self.binaries), str(self.base))


def make_layers(settings: Settings, wheels: Path | None, progress: Progress) -> Layers:
    """Everything that hosts are made from, out of the cache or made now.

    Raises:
        LabError: a part cannot be made.
    """
    cache = settings.cache
    lock = choose_lock(settings.checkout, wheels)

    def programs() -> tuple[Path, ...]:
        return (binaries(cache, progress),)

    def system() -> tuple[Path, ...]:
        base, house = in_parallel(
            [lambda: base_system(cache, progress), lambda: wheelhouse(cache, lock, progress)]
        )
        return base, house, environment_layer(cache, base, house, lock, progress)

    (built,), (base, house, environment) = in_parallel([programs, system])
    return Layers(base, built, environment, lock.environment_id, house)


class Bringup:
    """One run of `lab up`, made while the lab's lock is held."""

    def __init__(
        self, settings: Settings, coordination: Coordination, layers: Layers, progress: Progress
    ) -> None:
        self._settings = settings
        self._coordination = coordination
        self._layers = layers
        self._progress = progress
        self._changing = threading.Lock()
        self._state = state.load(settings) or LabState()

    def run(self, specs: Sequence[HostSpec], inventory: Path, bare: frozenset[str]) -> LabState:
        """Bring everything up and give the lab's state.

        Raises:
            LabError: a part does not come up.
        """
        settings, layers = self._settings, self._layers
        wanted = self._wanted(specs, bare)
        before = self._state.hosts
        self._change(
            replace(
                self._state,
                inventory=str(inventory.resolve()),
                binaries=str(layers.binaries),
                wheels=str(layers.wheels),
                environment=f"{ROOT}/{layers.environment_id}",
            )
        )
        network.ensure_switch(settings)
        server = self._coordination.ensure(self._state.server, layers.binaries)
        self._change(replace(self._state, server=server))
        self._remove_others(wanted)
        nodes = {node.name: node for node in self._coordination.nodes()}

        # Nodes log in one after the other, so that addresses follow the order of the inventory.
        turns = [threading.Event() for _ in range(len(wanted) + 1)]

        def control() -> None:
            try:
                self._ensure_control(nodes.get(CONTROL_NAME))
            finally:
                turns[0].set()

        def one(place: int, host: HostState) -> None:
            name = host.spec.name
            try:
                self._ensure_host(host, before.get(name), nodes.get(name), turns[place])
            finally:
                turns[place].wait()
                turns[place + 1].set()

        in_parallel(
            [control, *(lambda p=place, h=host: one(p, h) for place, host in enumerate(wanted.values()))]
        )
        # In the order of the inventory, whatever the order in which they came up.
        self._change(replace(self._state, hosts={name: self._state.hosts[name] for name in wanted}))
        return self._state

    def _change(self, new: LabState) -> None:
        with self._changing:
            self._state = new
            state.save(self._settings, new)

    def _change_host(self, host: HostState) -> None:
        with self._changing:
            self._state = self._state.with_host(host)
            state.save(self._settings, self._state)

    def _wanted(self, specs: Sequence[HostSpec], bare: frozenset[str]) -> dict[str, HostState]:
        quotas, limits = processor_quotas(specs), memory_limits(specs)
        known = self._state.hosts
        taken = {known[spec.name].index for spec in specs if spec.name in known}
        free = (index for index in range(1, len(specs) + len(taken) + 1) if index not in taken)
        return {
            spec.name: HostState(
                spec=spec,
                index=known[spec.name].index if spec.name in known else next(free),
                layers=self._layers.of(bare=spec.name in bare),
                bare=spec.name in bare,
                cpu_quota_cores=quotas[spec.name],
                memory_bytes=limits[spec.name],
            )
            for spec in specs
        }

    def _remove_others(self, wanted: dict[str, HostState]) -> None:
        """Take down what the inventory does not name, and what a killed run left without a record."""
        there = (
            set(self._state.hosts) | network.present(self._settings) | cgroups.places(self._settings.cgroup)
        )
        for name in sorted(there - set(wanted) - {CONTROL, SWITCH}):
            self._progress.say(f"{name}: taking it down")
            hosts.remove(self._settings, name)
            self._coordination.forget(name)
            self._change(self._state.without_host(name))

    def _ensure_host(
        self, wanted: HostState, old: HostState | None, node: Node | None, turn: threading.Event
    ) -> None:
        settings, name = self._settings, wanted.spec.name
        if old is not None and old.layers != wanted.layers:
            if _system(old) == _system(wanted):
                self._progress.say(f"{name}: booting it again, since its worker environment has changed")
                hosts.power_cut(settings, name)
            else:
                self._progress.say(f"{name}: making it anew, since what it was made from has changed")
                hosts.remove(settings, name)
                self._coordination.forget(name)
                old, node = None, None
        current = wanted if old is None else replace(wanted, init=old.init, address=old.address)
        if not hosts.is_running(settings, current):
            if old is None:
                hosts.remove(settings, name)  # what a killed run may have left
            with self._progress.step(f"{name}: booting"):
                current = hosts.boot(settings, current, str(self._layers.wheels))
            node = None if node is None else replace(node, online=False)
        elif network.ensure_link(settings, name, current.index):
            # Connections from before the repair look alive to both ends until they time out.
            hosts.restart_tailscaled(settings, current)
            node = None if node is None else replace(node, online=False)
        self._change_host(current)
        if node is None or not node.online:
            cgroups.set_cpu_quota(settings.cgroup, name, None)
            hosts.start_tailscaled(settings, current)
            if node is None and old is not None:
                hosts.leave_tailnet(settings, current)  # the coordination server was restarted
            turn.wait()
            node = log_in(
                name,
                lambda *arguments: hosts.tailscale(settings, current, *arguments),
                server=self._coordination,
                url=settings.login_server,
                ssh=True,
            )
        if node.expired:
            self._coordination.set_key_expired(name, expired=False)
        if node.ssh != "accept":
            self._coordination.set_ssh_policy(name, "accept")
        hosts.limit(settings, current)
        self._change_host(replace(current, address=node.address))

    def _ensure_control(self, node: Node | None) -> None:
        settings = self._settings
        process = self._state.control
        lost = process is not None and not network.holds(settings, CONTROL, process.pid)
        mended = network.ensure_link(settings, CONTROL, 0)
        if lost or mended or node is None:
            cgroups.kill(settings.cgroup, CONTROL)
        if node is None:
            # It never joined, or the coordination server was restarted and knows nobody.
            (settings.control_dir / "tailscaled.state").unlink(missing_ok=True)
        fresh = ensure_control(settings, process, self._layers.binaries)
        with self._changing:
            self._state = replace(self._state, control=fresh)
            state.save(settings, self._state)
        if node is None or not node.online or fresh != process:
            node = log_in(
                CONTROL_NAME,
                lambda *arguments: _tailscale_on_control(settings, fresh, self._layers.binaries, *arguments),
                server=self._coordination,
                url=settings.login_server,
                ssh=False,
            )
        with self._changing:
            self._state = replace(self._state, control_address=node.address)
            state.save(settings, self._state)


def _system(host: HostState) -> tuple[str, ...]:
    """The layers that a host's own disk depends on: all but the worker environment."""
    return host.layers if host.bare else host.layers[1:]


def _tailscale_on_control(settings: Settings, daemon: Process, programs: Path, *arguments: str) -> str:
    doors = cgroups.entrance(settings.cgroup, CONTROL)
    argv = [str(programs / "usr/local/bin/tailscale"), *arguments]
    return run(on_control(daemon.pid, argv, doors=doors, cwd=Path("/")))
