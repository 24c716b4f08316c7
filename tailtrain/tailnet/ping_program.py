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


def round_trip_in(said: str) -> float:
    """The shortest round trip in what the command printed, in seconds: what the path itself takes."""
    trips = [line.rpartition(" in ")[2] for line in said.splitlines() if line.startswith("pong from ")]
    return min(float(trip[:-2]) / 1000 if trip.endswith("ms") else float(trip[:-1]) for trip in trips)


def pongs(addresses: dict[str, str], seconds: float, options: list[str]) -> dict[str, str]:
    """What the command says of each, by name; all are asked at the same time, for so long at most."""
    asked = {
        name: subprocess.Popen(
            ["tailscale", "ping", *options, "--timeout=1s", f"--c={ATTEMPTS}", address],
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
        found[name] = said
    return found


def paths(addresses: dict[str, str], seconds: float) -> dict[str, str]:
    """The path to each of these, by name."""
    found = pongs(addresses, seconds, ["--until-direct"])
    return {name: path for name, said in found.items() if (path := path_in(said))}


def round_trips(addresses: dict[str, str], seconds: float) -> dict[str, list[object]]:
    """The shortest round trip to each of these in seconds, and whether the path is direct."""
    found = pongs(addresses, seconds, ["--until-direct=false"])
    return {
        name: [round_trip_in(said), path == "direct"]
        for name, said in found.items()
        if (path := path_in(said))
    }


def main() -> int:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    what = request.get("what", "paths")
    look = round_trips if what == "round_trips" else paths
    try:
        found, problem = look(request["addresses"], request["seconds"]), ""
    except OSError as error:
        found, problem = {}, f"tailscale: {error.strerror}"
    print(json.dumps({what: found, "problem": problem}))
    return 0
