"""The deploy lock: runs on the primary as plain Python, and holds the lock for as long as it lives.

Sent to the host by `tailtrain.fleet.lock`. Who holds the lock is whoever has the kernel's lock on one file;
the kernel frees it when that process ends, in whatever way, and names the process to anybody who asks. The
records beside it only say who that is, and never decide. The holder ends when its standard input does, or
when nothing came from there for a while: so a killed deploy, a closed laptop and a cut link free the lock.

All of it is in a folder of root's that a boot empties.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import struct
import sys
import time
from typing import Any

Document = dict[str, Any]

FOLDER = "/run/tailtrain"
SILENCE_SECONDS = 60.0
"""How long a deploy may be silent before it counts as gone."""

_LOCK, _HOLDER, _LAST, _BROKEN = "deploy.lock", "holder.json", "last.json", "broken.json"
_PATIENCE_SECONDS = 2.0
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def read(folder: str, name: str) -> Document:
    """One of the records, empty where there is none."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def write(folder: str, name: str, document: Document) -> None:
    """Replace one of the records at once."""
    path = os.path.join(folder, name)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(temporary, path)


def opened(folder: str) -> int:
    """A descriptor of the lock's file, made where it is not there."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def holding_process(lock: int) -> int:
    """The process that has the lock, by the kernel's word; 0 where none has."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def now() -> str:
    """The time, to the second, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def described(record: Document) -> Document:
    """A holder's record for others to read, with the seconds that it has held the lock."""
    held = max(0.0, time.time() - float(record.get("started", time.time())))
    return {**{key: str(record.get(key, "")) for key in ("token", "who", "since", "plan")}, "seconds": held}


def observed_lock(folder: str = FOLDER) -> Document:
    """Who is deploying (None: nobody), and a number that every deploy raises. Changes nothing."""
    holder = None
    try:
        lock = os.open(os.path.join(folder, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {"holder": None, "deploys": 0}
    try:
        if pid := holding_process(lock):
            record = read(folder, _HOLDER)
            holder = described(record if record.get("pid") == pid else {})
    finally:
        os.close(lock)
    return {"holder": holder, "deploys": int(read(folder, _LAST).get("deploys", 0))}


def raised(folder: str) -> int:
    """The next number. It follows the clock, so that it never comes again, not even after a boot."""
    return max(int(read(folder, _LAST).get("deploys", 0)) + 1, time.time_ns())


def obstacle(lock: int, request: Document, folder: str) -> Document | None:
    """Take the lock, or give who has it. A holder of the same deploy, left by a cut link, makes way."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with contextlib.suppress(OSError):
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        pid, record = holding_process(lock), read(folder, _HOLDER)
        # A holder that has just begun, or is about to end, has no record of its own.
        known = pid != 0 and record.get("pid") == pid
        if known and record.get("token") == request["token"]:
            end(lock, pid)
        elif known or time.monotonic() > deadline:
            return described(record if known else {})
        time.sleep(0.02)


def outdated(request: Document, folder: str) -> Document | None:
    """What happened since the plan was made, None where it still holds."""
    last, broken = read(folder, _LAST), read(folder, _BROKEN)
    if broken.get("token") == request["token"]:
        return {"broken_by": broken.get("by", ""), "at": broken.get("at", "")}
    if request["resumes"]:
        return None if last.get("token", request["token"]) == request["token"] else last
    return None if last.get("deploys", 0) == request["expected"] else last


def hold(request: Document, folder: str) -> Document:
    """Hold the lock until standard input ends; the reply says why it was not taken, or how it ended."""
    lock = opened(folder)
    holder = obstacle(lock, request, folder)
    if holder is not None:
        return {"refused": "held", "holder": holder}
    changed = outdated(request, folder)
    if changed is not None:
        return {"refused": "outdated", "since": changed}
    before = read(folder, _HOLDER)
    # The token comes first: the deploy waits for a record that begins with it.
    identity = {key: request[key] for key in ("token", "who", "plan")}
    try:
        for number in _ENDING_SIGNALS:
            signal.signal(number, lambda *_: sys.exit())
        write(folder, _LAST, {**identity, "deploys": raised(folder), "at": now()})
        record = {**identity, "since": now(), "started": time.time(), "pid": os.getpid()}
        write(folder, _HOLDER, {**record, "left_by": described(before) if before else None})
        silent = wait_for_end(float(request["silence_seconds"]))
    finally:
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        write(folder, _LAST, {**identity, "deploys": raised(folder), "at": now()})
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, _HOLDER))
    return {"ended": "silence" if silent else "released"}


def wait_for_end(silence_seconds: float) -> bool:
    """Until standard input ends (False), or was silent for so long (True)."""
    source = sys.stdin.fileno()
    while select.select([source], [], [], silence_seconds)[0]:
        if not os.read(source, 4096):
            return False
    return True


def end(lock: int, pid: int) -> None:
    """End the process that holds the lock. It is held on to first, so that no other of that number is hit."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if holding_process(lock) != pid:
                    return
                signal.pidfd_send_signal(process, number)
                select.select([process], [], [], _PATIENCE_SECONDS)
        finally:
            os.close(process)


def break_lock(request: Document, folder: str) -> Document:
    """End the holder with this token, and see to it that its deploy does not take the lock again."""
    lock = opened(folder)
    pid, record = holding_process(lock), read(folder, _HOLDER)
    if not pid:
        return {"refused": "free"}
    holder = described(record if record.get("pid") == pid else {})
    if holder["token"] != request["token"]:
        return {"refused": "other", "holder": holder}
    write(folder, _BROKEN, {"token": request["token"], "by": request["who"], "at": now()})
    end(lock, pid)
    return {"broken": holder}


def main() -> int:
    """Do what the request on standard input asks for: hold, break, or look."""
    request = json.loads(sys.stdin.buffer.readline())
    folder = request["folder"]
    if request["do"] == "look":
        reply = observed_lock(folder)
    else:
        reply = (hold if request["do"] == "hold" else break_lock)(request, folder)
    print(json.dumps(reply), flush=True)
    return 0
