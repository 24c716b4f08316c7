"""How a host reaches others over the tailnet: runs there as plain Python, and asks Tailscale's own command.

`tailscale ping --until-direct` sends until a direct path is found, and says by which path each answer came
(tailscale.com/kb/1080/cli#ping). A path is only looked for when there is traffic, so it is not enough to read
the status.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

ATTEMPTS = 4


def path_in(said: str) -> str:
    """The path in what the command printed: direct, relayed, or nothing where nobody answered."""
    answers = [line for line in said.splitlines() if line.startswith("pong from ")]
    if not answers:
        return ""
    by = answers[-1].partition(" via ")[2]
    return "relayed" if by.startswith(("DERP(", "peer-relay(")) else "direct"


def paths(addresses: dict[str, str], seconds: float) -> dict[str, str]:
    """The path to each of these, by name; all are asked at the same time, for so long at most."""
    asked = {
        name: subprocess.Popen(
            ["tailscale", "ping", "--until-direct", "--timeout=1s", f"--c={ATTEMPTS}", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name, address in addresses.items()
    }
    ends, found = time.monotonic() + seconds, {}
    for name, process in asked.items():
        try:
            said = process.communicate(timeout=max(0.0, ends - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0]
        found[name] = path_in(said)
    return {name: path for name, path in found.items() if path}


def main() -> int:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        found = paths(request["addresses"], request["seconds"])
    except OSError as error:
        found, problem = {}, f"tailscale: {error.strerror}"
    else:
        problem = ""
    print(json.dumps({"paths": found, "problem": problem}))
    return 0
