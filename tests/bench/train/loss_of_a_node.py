"""A node loses its power in the middle of a round: when the others know it and go on without it."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.planning import layout
from tests.bench.progress import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.train.fleet import Fleet

_BEFORE = 3  # rounds, so that an ordinary averaging is known
_LONG = 120.0


@dataclass(frozen=True)
class Lost:
    """What it cost, in seconds.

    Attributes:
        detected: from the power cut until two others' agents hold the node failed (of a pipeline, until the
            primary does not count on it any more); None without gossip.
        recovered: from the power cut until the first averaging (of a pipeline, step) without it was over.
        waited: how much longer that averaging took than the others; of a pipeline, all that was not trained
            after it was detected.
    """

    detected: float | None
    recovered: float
    waited: float


def measured(fleet: Fleet, victim: str) -> Lost:
    """Cut a host's power while it trains; it is up again, in its place in the lab, at the end."""
    observers = [name for name in fleet.hosts.names if name != victim]
    primary = fleet.hosts.names[0]
    before = fleet.wait_for_rounds(_BEFORE, 60 + 10 * _LONG)
    time.sleep(_middle(before))
    say(f"{victim} loses its power")
    cut = time.time()
    fleet.hosts.by_name[victim].power_cut()
    try:
        detected = None
        if fleet.hosts.read(primary, layout.SERF_CONFIG):
            detected = fleet.until(lambda: _held_failed(fleet, observers[:2], victim), _LONG, "death") - cut
        fleet.until(lambda: bool(_without(fleet.rounds(primary), victim, cut)), _LONG, "round without it")
        first = _without(fleet.rounds(primary), victim, cut)[0]
        usual = statistics.median(entry["averaging_seconds"] for entry in before)
        return Lost(detected, first["ended_unix"] - cut, max(0.0, first["averaging_seconds"] - usual))
    finally:
        fleet.hosts.by_name[victim].boot()


def of_a_pipeline(fleet: Fleet, victim: str) -> Lost:
    """The same of a node that holds a part of the model: the others meet again and divide it anew."""
    fleet.until(lambda: fleet.status().get("round", -1) >= 1, 10 * _LONG, "second round")
    say(f"{victim} loses its power, and with it a part of the model")
    cut = time.time()
    fleet.hosts.by_name[victim].power_cut()
    try:
        detected = fleet.until(lambda: not _computes(fleet, victim), _LONG, "death")
        fleet.until(lambda: bool(_steps(fleet, victim)), 3 * _LONG, "training without it")
        again = _steps(fleet, victim)
        recovered = fleet.until(lambda: _steps(fleet, victim) > again, _LONG, "step without it")
        return Lost(detected - cut, recovered - cut, recovered - detected)
    finally:
        fleet.hosts.by_name[victim].boot()


def _computes(fleet: Fleet, victim: str) -> bool:
    """Whether the primary trains, in its own eyes together with this node."""
    status = fleet.status()
    return status.get("state") == "training" and victim in status.get("members", ())


def _steps(fleet: Fleet, victim: str) -> int:
    """Steps of the model while the primary trains without this node; 0 while it does not."""
    status = fleet.status()
    trains = status.get("state") == "training" and victim not in status.get("members", ())
    return int(status.get("step", 0)) if trains else 0


def _middle(rounds: Sequence[dict[str, Any]]) -> float:
    """Seconds to the middle of the round that has just begun."""
    return float(statistics.median(entry["ended_unix"] - entry["started_unix"] for entry in rounds)) / 2


def _without(rounds: Sequence[dict[str, Any]], victim: str, cut: float) -> list[dict[str, Any]]:
    """The rounds that were averaged after the cut by others than the node."""
    return [
        entry
        for entry in rounds
        if entry["ended_unix"] > cut and victim not in {member["node"] for member in entry["group"]}
    ]


def _held_failed(fleet: Fleet, observers: Sequence[str], victim: str) -> bool:
    """Whether the agents of all these hosts hold the node failed."""
    for name in observers:
        config = json.loads(fleet.hosts.read(name, layout.SERF_CONFIG))
        # Serf's own command, run outside of the host's share: it only asks.
        said = fleet.hosts.outside(
            name,
            *("serf", "members", "-format=json", f"-rpc-addr={config['rpc_addr']}"),
            *(f"-rpc-auth={config['rpc_auth']}", f"-name={victim}"),
        )
        members = json.loads(said or "{}").get("members") or []
        if [member["status"] for member in members] != ["failed"]:
            return False
    return True
