"""Removes what tailtrain has put on a host: runs there as plain Python.

Its source is sent to the host, after those of `belongings_program` and what that needs, and uses nothing but
the standard library. What it prints is read by `tailtrain.fleet.undo`. It stops halfway as harmlessly as it
can: what vouches for a folder goes first, so that no half of one looks whole, and the same request finishes
the work.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tailtrain.fleet.belongings_program import (
    account_of,
    group_of,
    look,
    masked_for_ours,
    systemctl,
    unexpected,
    unit_files,
    unit_state,
)

if TYPE_CHECKING:
    from tailtrain.fleet.files_program import Document

_STEP_SECONDS = 0.1


class Stuck(Exception):  # noqa: N818 - becomes a sentence of the reply, is no error of the program
    """Something could not be removed; the message says what and why."""


def processes_of(uid: int) -> list[int]:
    """The processes of an account, this one excepted."""
    found = []
    for place in glob.glob("/proc/[0-9]*"):
        try:
            if os.stat(place).st_uid == uid:
                found.append(int(os.path.basename(place)))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def stop_units(request: Document) -> None:
    """Stop units and keep them from starting when the host boots."""
    for unit in request["units"]:
        if not unit_files(request, unit) and unit_state(unit)["active"] in ("inactive", "unknown"):
            continue
        systemctl("disable", "--quiet", unit)
        systemctl("stop", unit)
        state = unit_state(unit)["active"]
        if state not in ("inactive", "failed"):
            raise Stuck(f"{unit} does not stop: it is {state}")
        systemctl("reset-failed", unit)


def end_processes(uid: int) -> None:
    """End what an account still runs: asked first, killed after some seconds."""
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0)):
        for pid in processes_of(uid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + patience
        while processes_of(uid):
            if time.monotonic() > deadline:
                break
            time.sleep(_STEP_SECONDS)
        else:
            return
    raise Stuck(f"a process of its account does not end: {processes_of(uid)[0]}")


def remove(path: str, keep: list[str]) -> None:
    """Remove a file or a folder with all in it but what is to be kept; links are removed, not followed."""
    if not os.path.lexists(path) or any(f"{path}/".startswith(f"{kept}/") for kept in keep):
        return
    try:
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
        elif any(kept.startswith(path + "/") for kept in keep):
            for name in os.listdir(path):
                remove(os.path.join(path, name), keep)
        else:
            # Works with open folders, so that nobody can put a link in its way.
            shutil.rmtree(path)
    except OSError as error:
        raise Stuck(f"{error.filename or path} cannot be removed: {error.strerror}") from None


def remove_units(request: Document) -> None:
    """Remove the files of stopped units, and masks that were made for them.

    What was masked does not start when the host boots either: the links that would start it go first.
    """
    for masked in masked_for_ours(request):
        for path in unit_files(request, masked):
            remove(path, [])
    for unit in request["units"]:
        for path in unit_files(request, unit):
            remove(path, [])
    systemctl("daemon-reload")


def retire(request: Document) -> None:
    """Remove some units with their files, and nothing else; the units themselves are the last to go.

    Raises:
        Stuck: naming what stands in the way.
    """
    stop_units(request)
    for path in request["files"]:
        remove(path, [])
    remove_units(request)


def remove_account(request: Document) -> None:
    """Remove the account and its group."""
    name = request["account"]
    for command, there in (("userdel", account_of), ("groupdel", group_of)):
        if there(request) is None:
            continue
        done = subprocess.run([command, name], capture_output=True, text=True, timeout=60, check=False)
        if there(request) is not None:
            raise Stuck(f"the account {name} cannot be removed: {done.stderr.strip() or command}")


def undo(request: Document) -> None:
    """Remove all of ours, in an order in which it can be killed at any moment and done again.

    Raises:
        Stuck: naming what stands in the way.
    """
    keep = [path for path in request["keep"] if os.path.lexists(path)]
    account = account_of(request)
    stop_units(request)
    if account is not None:
        end_processes(account.pw_uid)
    for path in [path for pattern in request["vouchers"] for path in glob.glob(pattern)]:
        remove(path, keep)
    remove_units(request)
    for folder in request["folders"]:
        remove(folder, keep)
    for folder in request["parents"]:
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
    # What is kept belongs to the account, so then it stays as well.
    if not keep:
        remove_account(request)


def main() -> int:
    """Answer the request on standard input: look, remove all, or some units."""
    request = json.loads(sys.stdin.buffer.readline())
    reply: Document
    if request["mode"] == "look":
        reply = look(request)
    else:
        stands = unexpected([*request["parents"], *request["folders"]])
        reply = {"stuck": "; ".join(stands)}
        if not stands:
            try:
                retire(request) if request["mode"] == "retire" else undo(request)
            except (Stuck, subprocess.TimeoutExpired, OSError) as error:
                reply = {"stuck": str(error) or type(error).__name__}
    print(json.dumps(reply))
    return 0
