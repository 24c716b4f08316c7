"""Reads the hardware of a machine that is no node yet: plain Python that is sent there, and changes nothing.

It uses the probe's own reading, whose source is sent before it, so a plan will find the same. What it prints
is read by `tailtrain.fleet.newcomers`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tailtrain.fleet.files_program import read_json
from tailtrain.fleet.probe_program import hardware

SUDO_SECONDS = 10


def becomes_root() -> bool:
    """Whether who logs in here can work through sudo without being asked for a password."""
    try:
        asked = subprocess.run(
            ["sudo", "-n", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SUDO_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def main() -> int:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    root = os.geteuid() == 0
    answer = {
        "root": root,
        "sudo": not root and becomes_root(),
        "hardware": hardware(request["state"]),
        "lab": read_json(request["lab_marker"]),
    }
    print(json.dumps(answer))
    return 0
