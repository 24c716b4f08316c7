"""One probe per host: the request, and its reply as an observation."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gevent.pool import Pool

from tailtrain.data import send, verify
from tailtrain.errors import FleetError
from tailtrain.fleet import files_program, lock_program, probe_program, remote, units_program
from tailtrain.fleet.memory import Memory
from tailtrain.planning import layout
from tailtrain.planning.judgement import unlearned
from tailtrain.planning.observed import (
    Hardware,
    LockHolder,
    Observation,
    RunState,
    StoredFolder,
    StoredRun,
    TailnetState,
    UnitState,
    Unreachable,
)
from tailtrain.planning.receipt import read_receipt
from tailtrain.planning.topology.measurements import read_measured
from tailtrain.tailnet.daemon import current_netmap, forget_netmap
from tailtrain.tailnet.preflight import HostPreflight, check_hosts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyinfra.api.host import Host

    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.plan import Material

# folder -> (owner, mode); the first three are root's, so that a worker cannot change its own code
FOLDERS = {
    layout.ENVIRONMENT_DIR: ("root", "0755"),
    layout.CODE_DIR: ("root", "0755"),
    layout.CONFIG_DIR: ("root", "0755"),
    layout.STATE_DIR: (layout.ACCOUNT, "0750"),
    layout.CHUNK_DIR: (layout.ACCOUNT, "0750"),
    layout.MANIFEST_DIR: (layout.ACCOUNT, "0750"),
    layout.RUN_DIR: (layout.ACCOUNT, "0750"),
}
FILES = (
    layout.CONFIG,
    layout.SHARDED_CONFIG,
    layout.STORAGE_CA,
    layout.TOPOLOGY,
    *(f"{layout.UNIT_DIR}/{unit}" for unit in layout.UNITS),
)


def probe_request(material: Material) -> dict[str, object]:
    """What the probe is asked, the same for every host."""
    return {
        "account": layout.ACCOUNT,
        "folders": FOLDERS,
        "files": FILES,
        "units": [*layout.UNITS, layout.DEBIAN_SERF_UNIT],
        "secrets": [layout.SERF_CONFIG, layout.SERF_KEYRING],
        "programs": {layout.SERF_PACKAGE: layout.SERF_PROGRAM},
        "in_use": [material.code_id, *material.locks.values()],
        "where": {
            "state": layout.STATE_DIR,
            "chunks": layout.CHUNK_DIR,
            "manifests": layout.MANIFEST_DIR,
            "environments": layout.ENVIRONMENT_DIR,
            "codes": layout.CODE_DIR,
            "identity": layout.IDENTITY,
            "peer_id": layout.PEER_ID,
            "config": layout.CONFIG,
            "runs": layout.RUN_DIR,
            "lab_marker": layout.LAB_MARKER,
            "receipt": layout.RECEIPT,
            "credentials": layout.STORAGE_CONFIG,
            "measured": layout.MEASURED,
        },
    }


def probe(
    hosts: Sequence[Host],
    connected: set[Host],
    datasets: Sequence[PlannedDataset],
    material: Material,
    answers: Path | None = None,
) -> dict[str, Observation | Unreachable]:
    """Ask every host once, in parallel. A host that does not answer is in the result with the reason.

    Args:
        hosts: who is asked.
        connected: who of them can be.
        datasets: the declared ones.
        material: ids of code and environments.
        answers: the folder in which answers are remembered, see `Memory`.
    """
    modules = (verify, files_program, lock_program, units_program, probe_program)
    asker, request, memory = send.Asker(modules), probe_request(material), Memory(answers)
    known = frozenset(chunk.sha256 for d in datasets for chunk in (*d.train, *d.heldout))

    def ask(host: Host) -> Observation | Unreachable:
        if host not in connected:
            reason = host.connector_data.get("unreachable", "left out by --limit or --exclude")
            return Unreachable(host.name, reason)
        try:
            question = asker.question({**request, "known": memory.known(host.name)})
            before = time.time()
            said = remote.put(host, remote.Question(probe_program.__name__, question), timeout=180)
            after = time.time()
            return _observation(host.name, memory.whole(host.name, said), known, before, after)
        except FleetError as error:
            return Unreachable(host.name, str(error))

    found = {answer.node: answer for answer in Pool(64).imap_unordered(ask, hosts)}
    # Paths are found by traffic, so the netmap is read again now that there was some.
    forget_netmap()
    netmap, now = current_netmap(), datetime.now(UTC)
    checked = {checked.name: checked for checked in check_hosts(netmap, found, now=now)}
    return {
        name: replace(
            answer,
            address=checked[name].address,
            path=checked[name].path,
            tailnet=_tailnet_state(checked[name], now),
        )
        if isinstance(answer, Observation)
        else answer
        for name, answer in found.items()
    }


def _tailnet_state(host: HostPreflight, now: datetime) -> TailnetState:
    expiry = host.key_expiry
    return TailnetState(
        key_expires=f"{expiry:%Y-%m-%d}" if expiry else None,
        key_days=(expiry - now) / timedelta(days=1) if expiry else None,
        # The path is said beside each host anyway.
        warnings=tuple(warning for warning in host.warnings if not warning.startswith(host.path)),
    )


def _observation(
    name: str, reply: Mapping[str, Any], known: frozenset[str], before: float, after: float
) -> Observation:
    """The reply of a host.

    Args:
        name: of the host.
        reply: what `probe_program.reply` gave.
        known: the chunks of the declared data sets; all others are strays.
        before: when it was asked, in seconds since 1970.
        after: when it had answered.
    """
    sizes, damaged = reply["chunks"]["sizes"], reply["chunks"]["damaged"]
    found, lab, run = reply["hardware"], reply["lab"], reply["run"]
    clock = found["clock"]
    # The host read its clock at some moment between ours; only what lies outside that span is skew.
    skew = min(0.0, clock - before) + max(0.0, clock - after)
    status = run.get("status", {})
    return Observation(
        node=name,
        address="",
        path="",
        emulated=bool(lab),
        superuser=reply["uid"] == 0,
        hardware=Hardware(
            architecture=found["architecture"],
            system=found["system"],
            python=found["python"],
            systemd=found["systemd"],
            cores=found["cores"],
            usable_cores=float(lab.get("cpu_quota_cores", found["cores"])),
            memory_bytes=found["memory_bytes"],
            gpus=tuple(found["gpus"]),
            disk_free_bytes=found["disk_free_bytes"],
            clock_skew_seconds=skew,
        ),
        missing_packages=tuple(reply["missing_packages"]),
        account=not reply["account"],
        account_trouble=reply["account"],
        environments=frozenset(reply["environments"]),
        codes=frozenset(reply["codes"]),
        peer_id=reply["peer_id"],
        files=reply["files"],
        chunks=(known & sizes.keys()) - damaged.keys(),
        damaged={chunk: why for chunk, why in damaged.items() if chunk in known},
        manifests=frozenset(reply["manifests"]),
        units={unit: UnitState(**state) for unit, state in reply["units"].items()},
        run=RunState(
            run_id=run.get("run_id", ""),
            state=status.get("state", ""),
            round=status.get("round", -1),
            config_sha256=status.get("config_sha256", ""),
            final_sha256=run.get("final_sha256", ""),
            validated_sha256=run.get("validation", {}).get("model_sha256", ""),
            learned=not any(unlearned(run.get("validation", {}))),
            trained=_trained(status),
        ),
        modes={path: mode for path, mode in reply["modes"].items() if mode},
        modified={path: written for path, written in reply["modified"].items() if written},
        stray_chunks={chunk: size for chunk, size in sizes.items() if chunk not in known},
        stored=tuple(
            StoredFolder(parent, folder, reply["superfluous"][parent].get(folder, 0))
            for parent, folders in (
                (layout.ENVIRONMENT_DIR, reply["environments"]),
                (layout.CODE_DIR, reply["codes"]),
            )
            for folder in folders
        ),
        runs=tuple(StoredRun(**stored) for stored in reply["runs"]),
        receipt=read_receipt(reply["receipt"], name),
        lock=_holder(reply["lock"]["holder"]),
        deploys=reply["lock"]["deploys"],
        credentials=reply["credentials"],
        measured=read_measured(reply["measured"]),
        secrets={path: found for path, found in reply["secrets"].items() if found},
    )


def _trained(status: Mapping[str, Any]) -> float | None:
    total, target = status.get("total_tokens"), status.get("target_tokens")
    return min(total / target, 1.0) if isinstance(total, int) and target else None


def _holder(record: Mapping[str, Any] | None) -> LockHolder | None:
    return LockHolder(**{key: record[key] for key in ("token", "who", "since", "plan")}) if record else None
