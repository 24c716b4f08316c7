"""Six real Serf agents on loopback addresses, each with a watch, as the nodes of a fleet have them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from tailtrain.planning.serf_config import agent_config, keyring
from tailtrain.worker.gossip.members import Tags
from tailtrain.worker.gossip.watch import Watch, read_rpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

NAMES = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
TAGS = Tags(role="compute", cores=4, gpu=False)


def until(true: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait until something is true; the seconds that it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"not in {seconds} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def free_port(address: str) -> int:
    with socket.socket() as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


class SerfFleet:
    """The agents, by name; all ended by `close`."""

    def __init__(self, folder: Path, names: Iterable[str] = NAMES) -> None:
        self._folder, self.names, self.key = folder, tuple(names), secrets.token_bytes(32)
        self._addresses = {name: f"127.0.0.{index}" for index, name in enumerate(self.names, 2)}
        self._gossip = free_port(self._addresses[self.names[0]])
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.watches: dict[str, Watch] = {}

    def start(self, name: str, *, key: bytes | None = None, watched: bool = True) -> None:
        """Start an agent; again, if it was started before."""
        home = self._folder / name
        home.mkdir(parents=True, exist_ok=True)
        (home / "keyring.json").write_text(keyring(key or self.key))
        config = home / "serf.json"
        if not config.exists():
            said = agent_config(
                node=name,
                address=self._addresses[name],
                others=[address for other, address in self._addresses.items() if other != name],
                tags=TAGS.to_serf(),
                key=self.key,
                keyring_path=str(home / "keyring.json"),
                snapshot_path=str(home / "serf.snapshot"),
                gossip_port=self._gossip,
                rpc_port=free_port("127.0.0.1"),
            )
            config.write_text(json.dumps(said))
        with (home / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                ["serf", "agent", "-config-file", str(config)], stdout=log, stderr=log
            )
        if watched and name not in self.watches:
            self.watches[name] = Watch(*read_rpc(config))

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)
        self.await_live(self.names)

    def config(self, name: str) -> Path:
        return self._folder / name / "serf.json"

    def rpc(self, name: str) -> tuple[tuple[str, int], str | None]:
        return read_rpc(self.config(name))

    def log(self, name: str) -> str:
        return (self._folder / name / "log").read_text(errors="replace")

    def await_live(self, live: Iterable[str], *, seconds: float = 60.0, seers: Iterable[str] = ()) -> float:
        """Wait until these are live for all of them (or `seers`), and nobody else; the seconds it took."""
        wanted = frozenset(live)
        looking = [self.watches[name] for name in seers or wanted]
        return until(
            lambda: all(watch.sight.live == wanted and watch.sight.connected for watch in looking),
            seconds,
            f"live for all: {sorted(wanted)}",
        )

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.processes[name].pid, how)
        if how in {signal.SIGKILL, signal.SIGINT, signal.SIGTERM}:
            self.processes[name].wait(timeout=20)

    def close(self) -> None:
        for watch in self.watches.values():
            watch.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
