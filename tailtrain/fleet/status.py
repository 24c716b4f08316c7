"""Looking at a fleet that trains: each node's state, a worker's log, the report, the model."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gevent.pool import Pool

from tailtrain.errors import DeclarationError, FleetError
from tailtrain.fleet import remote, transfer
from tailtrain.fleet.datasets import WORK_DIR
from tailtrain.fleet.declared import declared_fleet
from tailtrain.fleet.report import REPORT
from tailtrain.planning import layout
from tailtrain.planning.rendering.text import table
from tailtrain.planning.serf_config import RPC_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_SCRIPT = f"""
id=$(sed -n 's/^  "run_id": "\\([0-9a-f]*\\)",$/\\1/p' {layout.CONFIG} 2>/dev/null)
cat {layout.RUN_DIR}/"$id"/status.json 2>/dev/null || echo '{{}}'
echo
systemctl is-active {layout.WORKER_UNIT}
if [ -f {layout.SERF_CONFIG} ]; then
    export SERF_RPC_AUTH=$(sed -n 's/.*"rpc_auth": "\\([0-9a-f]*\\)".*/\\1/p' {layout.SERF_CONFIG})
    timeout 5 serf members -rpc-addr=127.0.0.1:{RPC_PORT} -status=alive 2>/dev/null | grep -c .
else
    echo none
fi
"""


def ask_all(state: State) -> dict[str, dict[str, Any]]:
    """Each node's last status and its unit's state; `unreachable` holds the reason where there is none.

    Where Serf holds the membership, `sees` is how many nodes the host's agent holds alive, itself included.
    """

    def ask(host: Host) -> tuple[str, dict[str, Any]]:
        if host not in state.active_hosts:
            return host.name, {"unreachable": host.connector_data.get("unreachable", "not connected")}
        try:
            lines = remote.run(host, ["sh", "-c", _SCRIPT]).stdout.strip().splitlines()
        except FleetError as error:
            return host.name, {"unreachable": str(error)}
        *said, unit, sees = lines if len(lines) > 1 else ["unknown", "none"]
        known: dict[str, Any] = {"unit": unit} | ({"sees": int(sees)} if sees.isdigit() else {})
        try:
            return host.name, json.loads("".join(said)) | known
        except ValueError:
            return host.name, known

    found = dict(Pool(64).imap_unordered(ask, list(state.inventory)))
    return {host.name: found[host.name] for host in state.inventory}


def render_status(statuses: Mapping[str, Mapping[str, Any]]) -> str:
    """A table, a row for each node; below it, what those that wait are waiting for."""
    gossips = any("sees" in status for status in statuses.values())
    rows: list[Sequence[object]] = [
        ("Node", "worker", "state", "round", "tokens", "loss", "tokens/s", "said", *["sees"] * gossips)
    ]
    remarks = []
    for name, status in statuses.items():
        if "unreachable" in status:
            rows.append((name, "unknown", "unreachable", *[""] * (5 + gossips)))
            remarks.append((name, status["unreachable"]))
            continue
        ago = f"{time.time() - status['updated_unix']:.0f} s ago" if "updated_unix" in status else ""
        loss = status.get("loss")
        speed = status.get("tokens_per_second")
        rows.append(
            (
                name,
                status["unit"],
                status.get("state", "no run"),
                status.get("round", ""),
                f"{status['tokens']:,}" if "tokens" in status else "",
                f"{loss:.3f}" if loss is not None else "",
                f"{speed:,.0f}" if speed is not None else "",
                ago,
                *[f"{status['sees']} of {len(statuses)}" if "sees" in status else ""] * gossips,
            )
        )
        if status.get("message"):
            remarks.append((name, status["message"]))
    lines = table(rows, right=(3, 4, 5, 6, 7), indent=0)
    if remarks:
        lines += ["", *table(remarks)]
    return "\n".join(lines) + "\n"


def log(state: State, name: str | None, lines: int) -> str:
    """The end of the worker's log on a host, on the primary where none is named.

    Raises:
        DeclarationError: no such host in the inventory.
        FleetError: the host does not answer.
    """
    host = _host(state, name) if name else _primary(state)
    command = ["journalctl", "-u", layout.WORKER_UNIT, "-n", str(lines), "--no-pager", "-o", "short-iso"]
    return remote.run(host, command).stdout + "\n"


def fetch(state: State, folder: Path) -> tuple[Path, Path]:
    """Copy the model of the run that the primary is configured for, with its manifest.

    Raises:
        FleetError: the primary does not answer, or has no model yet.
        TransferError: the model arrived damaged.
    """
    primary = _primary(state)
    try:
        document = json.loads(remote.run(primary, ["cat", layout.CONFIG]).stdout or "{}")
    except ValueError:
        document = {}
    if not isinstance(document, dict) or "run_id" not in document:
        raise FleetError("has no run yet", host=primary.name, fix="Train first: tailtrain apply")
    run_id = document["run_id"]
    if not remote.run(primary, ["test", "-s", f"{layout.run(run_id)}/final/manifest.json"]).ok:
        raise FleetError(
            f"run {run_id} has no model yet: it is aggregated when the training has come to its end",
            host=primary.name,
            fix="How far it is: tailtrain status; to the end: tailtrain apply",
        )
    folder.mkdir(parents=True, exist_ok=True)
    return transfer.fetch_model(primary, run_id, folder)


def saved_report(state: State) -> dict[str, Any]:
    """The newest report that this machine has of the declared fleet's runs.

    Raises:
        DeclarationError: there is none.
    """
    declared_fleet(state.inventory)
    folder = Path(state.cwd or Path.cwd()) / WORK_DIR / "runs"
    found = sorted(folder.glob(f"*/{REPORT}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise DeclarationError(
            "no run has been validated from here",
            field=str(folder),
            fix="Train first: tailtrain apply",
        )
    try:
        report: dict[str, Any] = json.loads(found[-1].read_text(encoding="utf-8"))
    except ValueError as error:
        raise DeclarationError(
            f"is damaged: {error}",
            field=str(found[-1]),
            fix="Remove it; the next validation writes a new one",
        ) from None
    return report


def _host(state: State, name: str) -> Host:
    for host in state.inventory:
        if host.name == name.removeprefix("@tailscale/"):
            return host
    known = ", ".join(host.name for host in state.inventory)
    raise DeclarationError("no such host in the inventory", host=name, expected=f"one of {known}")


def _primary(state: State) -> Host:
    return _host(state, declared_fleet(state.inventory).primary.hostname)
