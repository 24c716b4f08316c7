"""The state of a host's units: runs there as plain Python, and changes nothing.

Its source is sent to the host before that of `tailtrain.fleet.probe_program`, and uses nothing but the
standard library.
"""

from __future__ import annotations

import subprocess
import time
from typing import Any

Document = dict[str, Any]
PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "MainPID",
    "StateChangeTimestamp",
    "DropInPaths",
)
APPLIED = b"TAILTRAIN_APPLIED="
"""The variable in which a unit of ours says what it was started with."""


def units(names: list[str]) -> Document:
    """The state of systemd units."""
    try:
        shown = subprocess.run(
            ["systemctl", "show", "--timestamp=unix", "-p", ",".join(PROPERTIES), *names],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    states = {}
    for block in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            unit, masked = values["Id"], values.get("LoadState") == "masked"
            pid = int(values.get("MainPID") or 0)
            states[unit] = {
                "active": values.get("ActiveState", "inactive"),
                "enabled": values.get("UnitFileState") == "enabled",
                "pid": pid,
                "since": utc(values.get("StateChangeTimestamp", "")),
                "drop_ins": [
                    *values.get("DropInPaths", "").split(),
                    *([f"masked (systemctl unmask {unit})"] if masked else []),
                ],
                "masked": masked,
                "applied": applied(pid),
            }
    return states


def applied(pid: int) -> str:
    """What a process was started with, as its environment says; empty where that says nothing."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return ""
    found = [entry.removeprefix(APPLIED) for entry in entries if entry.startswith(APPLIED)]
    return found[0].decode("ascii", "replace") if found else ""


def utc(timestamp: str) -> str:
    """A time as systemd writes it with --timestamp=unix, to the minute; empty where there is none."""
    digits = timestamp.removeprefix("@")
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(int(digits))) if digits.isdigit() else ""
