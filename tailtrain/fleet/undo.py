"""Undoing on a host what deploys have done there: looking first, then stopping, then removing."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from gevent.pool import Pool

from tailtrain.errors import FleetError
from tailtrain.fleet import belongings_program, files_program, lock_program, remote, undo_program
from tailtrain.fleet.lock import holder_of
from tailtrain.fleet.steps import must
from tailtrain.planning import layout
from tailtrain.planning.environment import FINISHED
from tailtrain.planning.observed import UnitState, Unreachable
from tailtrain.planning.receipt import read_receipt
from tailtrain.planning.undoing import Belongings, KeptRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyinfra.api.host import Host

FOLDERS = (layout.CONFIG_DIR, layout.ENVIRONMENT_DIR, layout.CODE_DIR, layout.STATE_DIR)
"""What is removed, in this order: without its configuration nothing of the rest can start."""

_REMOVAL_SECONDS = 900
PROGRAM = (files_program, lock_program, belongings_program, undo_program)
"""The modules that look and remove, in the order in which a host needs them."""


def undo_request(mode: str, *, keep_runs: bool = False) -> dict[str, object]:
    """What the program on the host is asked: `look` or `remove`."""
    return {
        "mode": mode,
        "units": layout.UNITS,
        "masked": {layout.SERF_UNIT: layout.DEBIAN_SERF_UNIT},
        "unit_dir": layout.UNIT_DIR,
        "folders": FOLDERS,
        # Made on the way to the folders in them; removed where they are empty then.
        "parents": sorted(
            {str(PurePosixPath(path).parent) for path in (layout.ENVIRONMENT_DIR, layout.CODE_DIR)}
        ),
        "places": [*FOLDERS, layout.CHUNK_DIR, layout.MANIFEST_DIR, layout.WHEEL_DIR, layout.RUN_DIR],
        "vouchers": [
            f"{layout.ENVIRONMENT_DIR}/*/{FINISHED}",
            f"{layout.CODE_DIR}/*/{FINISHED}",
            f"{layout.RUN_DIR}/*/status.json",
        ],
        "account": layout.ACCOUNT,
        "home": layout.STATE_DIR,
        "config": layout.CONFIG,
        "runs": layout.RUN_DIR,
        "receipt": layout.RECEIPT,
        "packages": (*layout.PACKAGES, layout.SERF_PACKAGE),
        "keep": [layout.RUN_DIR] if keep_runs else [],
    }


def look(host: Host) -> Belongings | Unreachable:
    """What of ours is on a connected host."""
    try:
        reply = remote.ask(host, PROGRAM, undo_request("look"), timeout=180)
    except FleetError as error:
        return Unreachable(host.name, str(error).removeprefix(f"{host.name}: "))
    return _belongings(host.name, reply)


def look_at(hosts: Iterable[Host]) -> dict[str, Belongings | Unreachable]:
    """What of ours is on connected hosts, by their names; all are asked at once."""
    return {found.node: found for found in Pool(64).imap_unordered(look, hosts)}


def _belongings(name: str, reply: Mapping[str, Any]) -> Belongings:
    return Belongings(
        node=name,
        superuser=reply["superuser"],
        unexpected=tuple(reply["unexpected"]),
        units={unit: UnitState(**state) for unit, state in reply["units"].items()},
        unit_bytes=reply["unit_bytes"],
        places=reply["places"],
        account=reply["account"],
        run=reply["run_id"],
        runs=tuple(KeptRun(**run) for run in reply["runs"]),
        receipt=read_receipt(reply["receipt"], name),
        left=tuple(reply["left"]),
        masked=tuple(reply["masked"]),
        lock=holder_of(reply["lock"]),
    )


def drain(host: Host) -> None:
    """Stop a host's worker, for the next boot as well; what it committed at the last averaging stays.

    Raises:
        FleetError: naming the host, where it does not stop or answer.
    """
    unit = layout.WORKER_UNIT
    there = shlex.join(["test", "-e", f"{layout.UNIT_DIR}/{unit}"])
    stop = shlex.join(["systemctl", "disable", "--quiet", "--now", unit])
    # The name without the file means that nothing can run.
    must(host, ["sh", "-c", f"! {there} || {stop}"], what="stop the worker", timeout=90)


def retire_agent(host: Host) -> None:
    """Stop a host's Serf agent, which leaves in order, and remove it with its key; done again, it finishes.

    Raises:
        FleetError: naming the host, and what stands in the way.
    """
    request = undo_request("retire") | {
        "units": [layout.SERF_UNIT],
        "files": [layout.SERF_SNAPSHOT, layout.SERF_CONFIG, layout.SERF_KEYRING],
    }
    if stuck := remote.ask(host, PROGRAM, request, timeout=90)["stuck"]:
        raise FleetError(stuck, host=host.name)


def clean(host: Host, *, keep_runs: bool = False) -> None:
    """Remove all of ours from a host; where that was interrupted, the same again finishes it.

    Args:
        host: a connected host.
        keep_runs: leave the runs, and the account that owns them.

    Raises:
        FleetError: naming the host, and what stands in the way; what is not as a deploy makes it (a mount
            point, a symbolic link) is left alone, and everything else with it.
    """
    request = undo_request("remove", keep_runs=keep_runs)
    try:
        stuck = remote.ask(host, PROGRAM, request, timeout=_REMOVAL_SECONDS)["stuck"]
    except FleetError as error:
        raise FleetError(
            "the removal did not come to its end",
            host=host.name,
            found=error.found or error.problem,
            fix="The same command goes on from there",
        ) from None
    if stuck:
        raise FleetError(stuck, host=host.name)
