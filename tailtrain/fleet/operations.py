"""The operations that the deploys call. Each does one action of the plan, on the hosts that have it.

What differs between hosts is data in the plan, never a branch in a deploy file: pyinfra orders operations by
the line that calls them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from pyinfra import context
from pyinfra.api import operation
from pyinfra.api.command import PyinfraCommand, StringCommand

from tailtrain.errors import GateError
from tailtrain.fleet import folders, remote, report, session, transfer, undo, watch
from tailtrain.fleet.keyring import forget_identity
from tailtrain.fleet.probe import FOLDERS
from tailtrain.fleet.steps import must, require_active, step
from tailtrain.planning import layout
from tailtrain.planning.environment import build_commands

if TYPE_CHECKING:
    from pyinfra.api.host import Host

Commands = Generator[PyinfraCommand, None, None]


def where_planned(key: str, work: Callable[[Host], None]) -> Commands:
    """The work, on a host whose plan has this action; nothing on others."""
    if session.here().does(key):
        yield step(work)


@operation()
def account() -> Commands:
    """The unprivileged account that workers run as, and the folders with their owners and modes."""
    if not session.here().does("account"):
        return
    name = layout.ACCOUNT
    home = ["--home-dir", layout.STATE_DIR, "--no-create-home", "--shell", "/usr/sbin/nologin"]
    create = shlex.join(["useradd", "--system", "--user-group", *home, name])
    yield StringCommand(f"getent passwd {shlex.quote(name)} >/dev/null || {create}")
    yield step(_make_folders)


def _make_folders(host: Host) -> None:
    folders.make(host, *((path, owner, mode) for path, (owner, mode) in FOLDERS.items()))


@operation()
def environment() -> Commands:
    """The worker's Python environment, built from the lock with every hash checked."""
    yield from where_planned("environment", _build_environment)


def _build_environment(host: Host) -> None:
    now = session.current()
    lock_name = now.plan.host(host.name).lock
    lock_id = now.bundle.material.locks[lock_name]
    lock = f"{layout.ENVIRONMENT_DIR}/{lock_id}.lock"
    content = (now.bundle.locks / f"{lock_name}.lock").read_bytes()
    transfer.send_contents(host, {lock: content}, mode="0644")
    wheels = None
    if now.bundle.wheels:
        wheels = layout.WHEEL_DIR
        folders.make(host, (wheels, "root", "0755"))
        described = [(transfer.described(path), path) for path in now.bundle.wheels]
        transfer.send_paths(host, wheels, described, owner="root")
    commands = build_commands(
        layout.environment(lock_id),
        lock,
        wheels=wheels,
        package_index=now.declared.settings.package_index,
    )
    script = " && ".join(map(shlex.join, commands))
    must(host, script, what="build the worker environment", timeout=3600)


@operation()
def code() -> Commands:
    """The worker's code, in a folder named after its hash."""
    yield from where_planned("code", _send_code)


def _send_code(host: Host) -> None:
    now = session.current()
    transfer.unpack(host, layout.code(now.bundle.material.code_id), now.bundle.code)


@operation()
def identity() -> Commands:
    """The node's peer identity: its key, readable by the worker alone, and the id that others know."""
    yield from where_planned("identity", _send_identity)


def _send_identity(host: Host) -> None:
    key, peer_id = session.current().identities[host.name]
    account = layout.ACCOUNT
    transfer.send_contents(host, {layout.IDENTITY: key}, mode="0600", owner=account, group=account)
    transfer.send_contents(
        host,
        {layout.PEER_ID: f"{peer_id} {hashlib.sha256(key).hexdigest()}\n".encode()},
        mode="0640",
        group=account,
    )
    forget_identity(session.current().identity_dir, host.name)


@operation()
def credentials() -> Commands:
    """The storage backend's credentials, readable by the worker alone; removed where nothing needs them."""
    yield from where_planned("credentials", _send_credentials)


def _send_credentials(host: Host) -> None:
    now = session.current()
    if now.plan.storage is None:
        folders.remove(host, [layout.STORAGE_CONFIG, layout.STORAGE_CA])
        return
    account = layout.ACCOUNT
    content = {layout.STORAGE_CONFIG: now.require_storage().config.encode()}
    transfer.send_contents(host, content, mode="0600", owner=account, group=account)
    # What is there and right is not written again, whatever its permissions are.
    must(host, ["chown", f"{account}:{account}", layout.STORAGE_CONFIG], what="own the credentials")
    must(host, ["chmod", "0600", layout.STORAGE_CONFIG], what="close the credentials to others")


@operation()
def files() -> Commands:
    """The node's configuration and units, each written atomically, and the receipt of what was applied."""
    yield from where_planned("files", _write_files)


def _write_files(host: Host) -> None:
    now = session.current()
    plan = now.plan.host(host.name)
    servers = {f"{layout.UNIT_DIR}/{unit}": unit for unit in (layout.CHUNKS_UNIT, layout.SERF_UNIT)}
    for change in sorted(plan.files, key=lambda change: change.path in servers):
        if change.path in servers:
            # Stopped first: killed here, the next deploy finds it so, never running with an old unit.
            remote.run(host, ["systemctl", "stop", servers[change.path]])
        content = {change.path: change.after.encode()}
        transfer.send_contents(host, content, mode=change.mode, group=change.group)
        # What is there and right is not written again, whatever its permissions are.
        must(host, ["chown", f"root:{change.group}", change.path], what=f"own {change.path}")
        must(host, ["chmod", change.mode, change.path], what=f"set permissions of {change.path}")
    must(host, ["systemctl", "daemon-reload"], what="reload systemd")
    if plan.does("serve"):
        # At once, as others may be fetching; whether it runs is looked at when all hosts are so far.
        remote.run(host, ["systemctl", "restart", layout.CHUNKS_UNIT])
    if plan.does("agent"):
        # At once too, as the others see it leave; one that runs is left to the operation that looks after it.
        remote.run(host, ["systemctl", "start", layout.SERF_UNIT])
    write_receipt(host)


def write_receipt(host: Host) -> None:
    """Leave on a host what was applied to it.

    Raises:
        TransferError: naming the host.
    """
    now = session.current()
    content = {layout.RECEIPT: now.receipt(now.plan.host(host.name)).encode()}
    transfer.send_contents(host, content, mode="0640", group=layout.ACCOUNT)


@operation()
def serve() -> Commands:
    """Start the chunk server, now and whenever the host boots: other nodes fetch this one's chunks there."""
    yield from where_planned("serve", _serve)


def _serve(host: Host) -> None:
    unit = layout.CHUNKS_UNIT
    remote.run(host, ["systemctl", "reset-failed", unit])
    must(host, ["systemctl", "enable", "--quiet", unit], what="enable the chunk server")
    # Why it does not start is in its log, which `require_active` shows.
    remote.run(host, ["systemctl", "start", unit], timeout=90)
    require_active(host, unit)


@operation()
def start() -> Commands:
    """Start the worker, or restart it with a changed configuration; it also starts when the host boots."""
    yield from where_planned("start", _start)
    yield from where_planned("restart", _start)


def _start(host: Host) -> None:
    unit = layout.WORKER_UNIT
    verb = "restart" if session.current().plan.host(host.name).does("restart") else "start"
    # Fails where the unit has never run, and has nothing to forget then.
    remote.run(host, ["systemctl", "reset-failed", unit])
    must(host, ["systemctl", "enable", "--quiet", unit], what="enable the worker")
    must(host, ["systemctl", verb, unit], what=f"{verb} the worker", timeout=90)
    require_active(host, unit)


@operation()
def stop() -> Commands:
    """Stop the worker; what was committed at the last averaging stays, and a resume goes on from there."""
    yield step(undo.drain)


@operation()
def train() -> Commands:
    """Wait for the training, on the primary alone, showing its progress; then collect every node's report."""
    yield from where_planned("watch", _train)


def _train(host: Host) -> None:
    now = session.current()
    watch.until_finished(host, now.plan, now.require_gate())
    now.reports = watch.collect_reports(context.ctx_state.get(), now.plan)


@operation()
def aggregate() -> Commands:
    """Make the final model on the primary, with a manifest of who contributed what, and fetch it here."""
    yield from where_planned("aggregate", _aggregate)


def _aggregate(host: Host) -> None:
    now = session.current()
    if not now.reports:
        now.reports = watch.collect_reports(context.ctx_state.get(), now.plan)
    command = now.worker_command(host.name, "aggregate")
    must(host, command, what="aggregate the model", stdin=json.dumps({"nodes": now.reports}), timeout=900)


@operation()
def model() -> Commands:
    """The aggregated model, from the primary by way of the control machine, checked against its hash."""
    yield from where_planned("model", _send_model)


def _send_model(host: Host) -> None:
    now = session.current()
    run = layout.run(now.plan.run_id)
    folder = f"{run}/final"
    primary = context.ctx_state.get().inventory.get_host(now.plan.primary.node.hostname)
    paths = transfer.fetch_model(primary, now.plan.run_id, now.run_dir / "final")
    # Both are named, so that both belong to the worker: a node that came after the training has neither.
    folders.make(host, *((path, layout.ACCOUNT, "0750") for path in (run, folder)))
    transfer.send_paths(host, folder, [(transfer.described(path), path) for path in paths])


@operation()
def validate() -> Commands:
    """Judge the aggregated model on this node's held-out records."""
    yield from where_planned("validate", _validate)


def _validate(host: Host) -> None:
    unit = layout.VALIDATE_UNIT
    output = remote.run(host, ["systemctl", "start", unit], timeout=1800)
    if not output.ok:
        raise GateError(f"validation failed; its log ends:\n{remote.journal(host, unit)}", host=host.name)


@operation()
def judge() -> Commands:
    """The gate at the end, and the report: losses by domain and node, and the six guarantees."""
    yield from where_planned("judge", _judge)


def _judge(host: Host) -> None:  # noqa: ARG001 - runs on the primary, looks at all
    report.judge(session.current(), context.ctx_state.get())
