"""Slow links: everything between a place and the rest of the lab takes longer, until that is undone."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from lab import cgroups
from lab.processes import last_lines, launch, wait_for
from lab.settings import SWITCH, Settings
from lab.state import Process
from lab.system import run
from tailtrain.errors import LabError

_BRIDGE = "bridge"
_FORWARDER = Path(__file__).with_name("delay.py")


def slow_down(settings: Settings, index: int, seconds: float) -> None:
    """Delay every frame on a link by this long in each direction; a round trip takes twice as much longer.

    Args:
        settings: of the lab.
        index: of the host; 0 is the control side.
        seconds: above zero.

    Raises:
        LabError: no such delay, or it does not come about.
    """
    if not 0 < seconds <= 10:  # noqa: PLR2004 - said in the message
        raise LabError("a link's delay is above 0 and at most 10 s", field="delay", found=f"{seconds:g} s")
    speed_up(settings, index)
    switch, port, tap = settings.netns(SWITCH), f"port{index}", f"slow{index}"
    log, note = _files(settings, index)
    # A bridge's address is that of one of its ports, unless it is given one; nobody is to notice the swap.
    address = json.loads(run(["ip", "-netns", switch, "-json", "link", "show", _BRIDGE]))[0]["address"]
    _ip(switch, "link", "set", _BRIDGE, "address", address)
    _ip(switch, "tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr")
    _ip(switch, "link", "set", tap, "master", _BRIDGE, "up")
    # Else the kernel would answer for the bridge's address at the port, past the delay.
    _ip(switch, "link", "set", port, "nomaster", "arp", "off")
    forwarder = shlex.join([sys.executable, "-I", str(_FORWARDER), port, tap, str(seconds)])
    script = f"""
        echo $$ > {shlex.quote(str(note))}
        exec nsenter --net=/run/netns/{switch} -- {forwarder}
    """
    launch(cgroups.entrance(settings.cgroup, SWITCH), script, log)
    wait_for(
        lambda: True if _carrier(switch, tap) else None,
        seconds=10,
        otherwise=lambda: LabError(f"the slow link does not start: {last_lines(log)}"),
    )


def speed_up(settings: Settings, index: int) -> None:
    """Undo `slow_down`, if there is anything to undo."""
    log, note = _files(settings, index)
    if not note.exists():
        return
    switch, port, tap = settings.netns(SWITCH), f"port{index}", f"slow{index}"
    _end(note)
    links = {link["ifname"] for link in json.loads(run(["ip", "-netns", switch, "-json", "link", "show"]))}
    if tap in links:
        _ip(switch, "link", "delete", tap)
    if port in links:
        _ip(switch, "link", "set", port, "master", _BRIDGE, "arp", "on")
    log.unlink(missing_ok=True)
    note.unlink()


def delay(settings: Settings, index: int) -> float | None:
    """By how many seconds a link delays each frame; None: not at all."""
    _, note = _files(settings, index)
    forwarder = _forwarder(note)
    return None if forwarder is None else float(forwarder.arguments[-1])


def _files(settings: Settings, index: int) -> tuple[Path, Path]:
    """Where a forwarder complains, and where its process id is noted."""
    return settings.state / f"slow{index}.log", settings.state / f"slow{index}.pid"


def _carrier(switch: str, tap: str) -> bool:
    """Whether somebody holds the tap's other end."""
    shown = json.loads(run(["ip", "-netns", switch, "-json", "link", "show", tap]))[0]
    return "LOWER_UP" in shown["flags"]


@dataclass(frozen=True)
class _Forwarder:
    process: Process
    arguments: tuple[str, ...]


def _forwarder(note: Path) -> _Forwarder | None:
    """The process that this note is of, while it runs."""
    try:
        process = Process.of(int(note.read_text()))
        arguments = Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0").split("\0")
    except (OSError, ValueError):
        return None
    if str(_FORWARDER) not in arguments:
        return None  # the id is somebody else's by now
    return _Forwarder(process, tuple(arguments))


def _end(note: Path) -> None:
    forwarder = _forwarder(note)
    if forwarder is None:
        return
    process = forwarder.process
    os.kill(process.pid, signal.SIGKILL)
    wait_for(
        lambda: None if process.alive else True,
        seconds=10,
        otherwise=lambda: LabError(f"process {process.pid} does not end"),
    )


def _ip(namespace: str, *arguments: str) -> None:
    run(["ip", "-netns", namespace, *arguments])
