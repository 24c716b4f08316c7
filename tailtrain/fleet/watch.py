"""Waiting for the training: one watcher, on the primary, that reconnects; then every node's report."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click
import gevent
from gevent.pool import Pool

from tailtrain.errors import FleetError, LockedError
from tailtrain.fleet import remote
from tailtrain.planning import layout

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from tailtrain.fleet.gate import Gate
    from tailtrain.planning.plan import Plan

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 300.0
SETTLE_SECONDS = 90.0
_MARK = "--tailtrain--"


def until_finished(host: Host, plan: Plan, gate: Gate) -> None:
    """Wait until the primary says that the run is finished, showing each round as it ends.

    Ctrl-C leaves the run going, and so does a deploy lock that was broken.

    Raises:
        FleetError: the worker failed or ended (with the end of its log), the primary stayed away, or the
            deploy lock was lost to somebody else.
    """
    watcher = _Watcher(host, plan, gate)
    way_back = (
        f"run {plan.run_id} goes on without this window",
        "come back with the same command, look with `tailtrain status`, end it with `tailtrain stop`",
    )
    with gate.leaving.saying(*way_back):
        while not watcher.finished():
            gevent.sleep(POLL_SECONDS)


class _Watcher:
    """What has been shown so far, and since when something has been amiss."""

    def __init__(self, host: Host, plan: Plan, gate: Gate) -> None:
        self._host, self._plan, self._gate = host, plan, gate
        self._seen = 0
        self._message = ""
        self._lost_since: float | None = None
        self._ended_since: float | None = None

    def finished(self) -> bool:
        """Look once, show what is new, and say whether the run is over."""
        try:
            status, rounds, unit = _look(self._host, self._plan.run_id, self._seen)
            self._gate.require_lock()
        except LockedError:
            raise
        except FleetError as error:
            self._bear_absence(error)
            return False
        self._lost_since = None
        for entry in rounds:
            _say(round_line(entry, status))
        self._seen += len(rounds)
        if status.get("state") == "finished":
            return True
        if status.get("message") and status["message"] != self._message:
            self._message = status["message"]
            _say(f"{status['state']}: {self._message}")
        self._require_running(status, unit)
        return False

    def _bear_absence(self, error: FleetError) -> None:
        now = time.monotonic()
        if self._lost_since is None:
            self._lost_since = now
            _say(f"lost sight of the primary ({error.problem}); training goes on, trying again")
        if now - self._lost_since > PATIENCE_SECONDS:
            raise error

    def _require_running(self, status: dict[str, Any], unit: str) -> None:
        """A unit that systemd is about to restart is given a moment."""
        now, state = time.monotonic(), status.get("state", "")
        if unit == "active":
            self._ended_since = None
            return
        self._ended_since = self._ended_since or now
        if state == "failed" or now - self._ended_since > 4 * POLL_SECONDS:
            log = remote.journal(self._host, layout.WORKER_UNIT)
            raise FleetError(
                f"the worker ended ({unit}, {state or 'no status'}): {status.get('message', '')}\n{log}",
                host=self._host.name,
                fix="Once the cause is gone: tailtrain resume",
            )


def collect_reports(state: State, plan: Plan) -> dict[str, dict[str, Any] | None]:
    """Each node's last status, waiting a little for those that are still ending their last round.

    A node that does not answer has None. A worker that has not finished by then is stopped: the run is over.
    """
    names = {host.node.hostname for host in plan.hosts if not host.unreachable}
    hosts = [host for host in state.inventory if host.name in names]

    def settle(host: Host) -> tuple[str, dict[str, Any] | None]:
        deadline, status = time.monotonic() + SETTLE_SECONDS, None
        while time.monotonic() < deadline:
            try:
                status, _, unit = _look(host, plan.run_id, None)
            except FleetError:
                gevent.sleep(POLL_SECONDS)
                continue
            if status.get("state") == "finished" or unit not in ("active", "activating"):
                return host.name, status or None
            gevent.sleep(POLL_SECONDS)
        try:
            remote.run(host, ["systemctl", "stop", layout.WORKER_UNIT], timeout=60)
        except FleetError as error:
            _say(str(error))
        return host.name, status

    reports: dict[str, dict[str, Any] | None] = {host.node.hostname: None for host in plan.hosts}
    reports.update(Pool(64).imap_unordered(settle, hosts))
    return reports


def _look(host: Host, run_id: str, seen: int | None) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Status, rounds after the first `seen` (None: no rounds), and the unit's state: one short command."""
    folder = layout.run(run_id)
    rounds_after = "" if seen is None else f" tail -n +{seen + 1} {folder}/progress.jsonl 2>/dev/null;"
    script = (
        f"cat {folder}/status.json 2>/dev/null; echo; echo {_MARK};"
        f"{rounds_after} echo {_MARK};"
        f" systemctl is-active {layout.WORKER_UNIT}"
    )
    parts = remote.run(host, ["sh", "-c", script], timeout=30).stdout.split(_MARK)
    if len(parts) != 3:  # noqa: PLR2004 - the three that the script prints
        raise FleetError("gave half an answer", host=host.name)
    rounds = [entry for line in parts[1].splitlines() if (entry := _json(line))]
    return _json(parts[0]), rounds, parts[2].strip()


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def round_line(entry: dict[str, Any], status: dict[str, Any]) -> str:
    """A round in one line, with how far the run is then.

    Args:
        entry: of progress.jsonl.
        status: of the same node, for the run's target.
    """
    if "step" in entry:
        return _checkpoint_line(entry, status)
    group = entry["group"]
    tokens = sum(member["tokens"] for member in group)
    lost = sum(member["loss"] * member["tokens"] for member in group if member["tokens"])
    loss = lost / tokens if tokens else float("nan")
    target, total = status["target_tokens"], entry["total_tokens"]
    speeds = "  ".join(f"{member['node']} {member['tokens_per_second']:,.0f}" for member in group)
    speed = sum(member["tokens_per_second"] for member in group)
    pair = "" if entry.get("all", True) else " in a pair"
    return (
        f"round {entry['round']:>3}{pair}  loss {loss:.3f}  {total:,} of {target:,} tokens"
        f" ({min(total / target, 1):.0%})  {speed:,.0f} tokens/s:  {speeds}"
    )


def _checkpoint_line(entry: dict[str, Any], status: dict[str, Any]) -> str:
    """A checkpoint of a divided model: who has which layers, and how much of the time each computed."""
    group, target, total = entry["group"], status["target_tokens"], entry["total_tokens"]
    seconds = max(entry["train_seconds"], 1e-9)
    speed = sum(member["tokens"] for member in group) / seconds
    parts = "  ".join(
        f"{member['node']} {member['layers'][0]}-{member['layers'][1] - 1}"
        f" {min(member['busy_seconds'] / seconds, 1):.0%}"
        for member in group
    )
    loss = "not finite" if entry["loss"] is None else f"{entry['loss']:.3f}"
    return (
        f"step {entry['step']:>5}  loss {loss}  {total:,} of {target:,} tokens"
        f" ({min(total / target, 1):.0%})  {speed:,.0f} tokens/s; layers, and computing:  {parts}"
    )


def _say(line: str) -> None:
    click.echo(f"    {line}", err=True)
