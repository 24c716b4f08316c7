"""Plans in which everything happens at once, for the tests of documents and texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailtrain.planning.observed import LockHolder
from tailtrain.planning.parts import Action, Drift, FileChange, Phase, Preflight, Removal
from tailtrain.planning.plan import DepartedHost
from tailtrain.planning.receipt import Login
from tests.plans.situations import SEVENTH, Situation

if TYPE_CHECKING:
    from tailtrain.planning.plan import Plan

FINE = Preflight(
    key_expires=None,
    key_days=None,
    disk_free_bytes=50 * 10**9,
    disk_needed_bytes=10**9,
    clock_skew_seconds=0.02,
    declared="4 cores, 8 GB, no GPU",
    found="4 cores, 7.8 GiB, no GPU",
)
LOCK = LockHolder("lock-5af3", "ann@desk", "2026-01-01 10:00 UTC", "0123456789ab")
DRIFT = Drift("/etc/tailtrain/worker.json", "aaaa, applied by ann", "bbbb, written at noon", "cccc")
REMOVAL = Removal(
    "run 0123 (finished)", "not among the 2 newest", ("/var/lib/tailtrain/runs/0123",), 7_000_000
)
LEFT = (
    DepartedHost(
        "lantern",
        Login("me", sudo=True),
        run="0123",
        frees=9_000_000,
        actions=(
            Action(Phase.TRAIN, "drain", "stop the worker", "it left the fleet"),
            Action(Phase.CLEAN, "clean", "remove the worker, its data and all runs", "it left the fleet"),
        ),
    ),
    DepartedHost("beacon", Login(), unreachable="no answer within 10 s"),
    DepartedHost("ember", Login(), gone=True),
    DepartedHost("flare", Login(), frees=5_000_000),
    DepartedHost("torch", Login()),
)


def with_host(plan: Plan, name: str, **fields: Any) -> Plan:
    """The plan, with other values for one of its hosts."""
    hosts = [replace(host, **fields) if host.node.hostname == name else host for host in plan.hosts]
    return replace(plan, hosts=tuple(hosts))


def eventful() -> Plan:
    """A seventh host mid-run, one that is away, drift, damage, hosts that left, somebody who deploys."""
    situation = Situation().applied(state="training", unit="active").add(SEVENTH)
    plan = situation.unreachable("judge", "no answer within 10 s from 100.64.0.4:22").plan()
    plan = replace(plan, lock=LOCK, departed=LEFT)
    relayed = replace(
        FINE,
        key_expires="2026-01-07T00:00:00Z",
        key_days=6.4,
        disk_free_bytes=3 * 10**9,
        disk_needed_bytes=2 * 10**9,
        clock_skew_seconds=-1.25,
        warnings=("its Tailscale key expires on 2026-01-07, in 6 days",),
    )
    for host in plan.hosts:
        if not host.unreachable:
            plan = with_host(plan, host.node.hostname, preflight=FINE)
    plan = with_host(plan, "architect", preflight=relayed, path="relayed via fra", drift=(DRIFT,))
    binary = FileChange("/etc/tailtrain/blob", "0640", "tailtrain", "a\0b", "a\0cd")
    qfox = plan.host("qfox")
    return with_host(plan, "qfox", removals=(REMOVAL,), files=(*qfox.files, binary), notes=("trains on CPU",))
