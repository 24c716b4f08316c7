"""The probe: runs on a host as plain Python, changes nothing there but its own cache of verified hashes.

Its source is sent to the host, after those of `tailtrain.data.verify`, `tailtrain.fleet.files_program`,
`tailtrain.fleet.lock_program` and `tailtrain.fleet.units_program`; besides, it uses nothing but the standard
library (few modules of it, since starting costs more than looking) and asks few other programs. What it
prints is read by `tailtrain.fleet.probe`.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import os
import pwd
import re
import stat
import sys
import time
from typing import Any

from tailtrain.data.verify import examine, tree, tree_sha256
from tailtrain.fleet.files_program import (
    bytes_under,
    complete,
    is_plain,
    may_read,
    mode_of,
    names_in,
    read,
    read_json,
    read_system,
    sha256_of,
    when,
)
from tailtrain.fleet.lock_program import observed_lock
from tailtrain.fleet.units_program import units

Document = dict[str, Any]
SECRET = 0o600
GPUS = "/proc/driver/nvidia/gpus"
HASH = re.compile(r"[0-9a-f]{64}")
RUN_ID = re.compile(r"[0-9a-f]{16}")


def hardware(data_dir: str) -> Document:
    """What this machine has; its disk is the one that data go to."""
    folder = data_dir
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    release = dict(line.split("=", 1) for line in read_system("/etc/os-release").splitlines() if "=" in line)
    memory = next(
        int(line.split()[1]) * 1024
        for line in (read_system("/proc/meminfo") or "MemTotal: 0 kB").splitlines()
        if line.startswith("MemTotal")
    )
    gpus = sorted(os.listdir(GPUS)) if os.path.isdir(GPUS) else []
    space = os.statvfs(folder)
    return {
        "architecture": os.uname().machine,
        "system": release.get("PRETTY_NAME", "unknown").strip('"'),
        "python": "{}.{}".format(*sys.version_info[:2]),
        "systemd": os.path.isdir("/run/systemd/system"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "gpus": gpus,
        "disk_free_bytes": space.f_bavail * space.f_frsize,
        "clock": time.time(),
    }


def account(name: str, folders: Document) -> str:
    """Why the account and its folders are not as they should be; empty where they are."""
    try:
        uid, gid = pwd.getpwnam(name).pw_uid, grp.getgrnam(name).gr_gid
    except KeyError:
        return "not there"
    for path, (owner, mode) in folders.items():
        try:
            found = os.lstat(path)
        except OSError:
            return f"{path} is not there"
        if stat.S_ISLNK(found.st_mode):
            return f"{path} is a symbolic link to {os.readlink(path)!a}"
        if not stat.S_ISDIR(found.st_mode):
            return f"{path} is no folder"
        wanted = (uid, gid) if owner == name else (0, found.st_gid)
        if (found.st_uid, found.st_gid) != wanted or stat.S_IMODE(found.st_mode) != int(mode, 8):
            return f"{path} has other permissions or another owner"
    return ""


def unchanged(folder: str, names: list[str], in_use: list[str]) -> list[str]:
    """Codes, without one that is in use and has other files than those that its name is the hash of."""
    return [
        name
        for name in names
        if name not in in_use or tree_sha256(tree(os.path.join(folder, name))).startswith(name)
    ]


def superfluous(folder: str, names: list[str], in_use: list[str]) -> Document:
    """The bytes of those that are not in use, but for the newest: counting is slow, and that one is kept."""
    others = [name for name in names if name not in in_use]
    return {name: bytes_under(os.path.join(folder, name)) for name in others[1:]}


def stored_runs(folder: str) -> list[Document]:
    """The runs that are kept here."""
    found = []
    for name in names_in(folder):
        place = os.path.join(folder, name)
        if RUN_ID.fullmatch(name) and is_plain(place):
            status = os.path.join(place, "status.json")
            found.append(
                {
                    "run_id": name,
                    "state": str(read_json(status).get("state", "")),
                    "bytes": bytes_under(place),
                    "modified_unix": os.lstat(status if os.path.lexists(status) else place).st_mtime,
                }
            )
    return found


def peer_id(name: str, key: str, identity: str) -> str | None:
    """The peer id, if the key that it belongs to is there, closed to others, and still the same."""
    try:
        found = os.lstat(key)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != pwd.getpwnam(name).pw_uid
            or stat.S_IMODE(found.st_mode) != SECRET
        ):
            return None
    except (KeyError, OSError):
        return None
    known, *key_hash = (read(identity) or "").split() or [""]
    return None if not known or key_hash not in ([], [sha256_of(key)]) else known


def credentials(path: str) -> str:
    """The hash, mode and owners of a file whose content is nobody's business; empty where there is none."""
    found, mode = sha256_of(path), mode_of(path)
    return f"{found} {mode}" if found and mode else ""


def run_state(config: str, runs: str) -> Document:
    """How far the configured run is on this host."""
    run_id = str(read_json(config).get("run_id", ""))
    if not run_id:
        return {}
    folder = os.path.join(runs, run_id)
    model, final = os.path.join(folder, "final", "model.safetensors"), ""
    wanted = read_json(os.path.join(folder, "final", "manifest.json")).get("sha256")
    if wanted and sha256_of(model) == wanted:
        final = wanted
    return {
        "run_id": run_id,
        "status": read_json(os.path.join(folder, "status.json")),
        "final_sha256": final,
        "validation": read_json(os.path.join(folder, "validation.json")),
    }


def chunks(folder: str, reader: str) -> Document:
    """The size of each file in the folder of chunks, and what is wrong with those whose name is a hash.

    A chunk is named by its hash, so nobody needs to say which ones there should be: the question stays as
    small as it is, however large the data. What its reader may not read is wrong too.
    """
    looks = {}
    for name in names_in(folder):
        if not name.startswith("."):
            with contextlib.suppress(FileNotFoundError):
                looks[name] = os.lstat(os.path.join(folder, name))
    hashes = {name: look for name, look in looks.items() if HASH.fullmatch(name)}
    damaged = (
        dict(examine(folder, {name: look.st_size for name, look in hashes.items()})["damaged"])
        if hashes
        else {}
    )
    for name, look in hashes.items():
        if not may_read(reader, look):
            damaged.setdefault(name, "the worker may not read it")
    return {"sizes": {name: look.st_size for name, look in looks.items()}, "damaged": damaged}


def reply(request: Document) -> Document:
    """Everything that the request asks for."""
    where = request["where"]
    manifests = [
        name.removesuffix(".json")
        for name in names_in(where["manifests"])
        if sha256_of(os.path.join(where["manifests"], name)) == name.removesuffix(".json")
    ]
    missing = []
    if not os.path.exists(os.path.join(os.path.dirname(os.__file__), "ensurepip", "__init__.py")):
        missing.append("python3-venv")
    if not os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
        missing.append("ca-certificates")
    missing += [package for package, program in request["programs"].items() if not os.path.exists(program)]
    environments, codes = complete(where["environments"], "bin/python"), complete(where["codes"])
    return {
        "uid": os.geteuid(),
        "hardware": hardware(where["chunks"]),
        "lab": read_json(where["lab_marker"]),
        "missing_packages": missing,
        "account": account(request["account"], request["folders"]),
        "environments": environments,
        "codes": unchanged(where["codes"], codes, request["in_use"]),
        "superfluous": {
            where["environments"]: superfluous(where["environments"], environments, request["in_use"]),
            where["codes"]: superfluous(where["codes"], codes, request["in_use"]),
        },
        "peer_id": peer_id(request["account"], where["identity"], where["peer_id"]),
        "files": {path: read(path) for path in request["files"]},
        "modified": {path: when(path) for path in [*request["files"], *request["secrets"]]},
        "modes": {path: mode_of(path) for path in request["files"]},
        "receipt": read(where["receipt"]),
        "credentials": credentials(where["credentials"]),
        "measured": read_json(where["measured"]),
        "secrets": {path: credentials(path) for path in request["secrets"]},
        "chunks": chunks(where["chunks"], request["account"]),
        "manifests": manifests,
        "units": units(request["units"]),
        "run": run_state(where["config"], where["runs"]),
        "runs": stored_runs(where["runs"]),
        "lock": observed_lock(),
    }


def news(found: Document, known: list[str]) -> Document:
    """An answer without the parts whose digests the asker knows already; the digests of all parts."""
    digests = {
        part: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
        for part, value in found.items()
    }
    parts = {part: value for part, value in found.items() if digests[part] not in known}
    return {"digests": digests, "parts": parts}


def main() -> int:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    print(json.dumps(news(reply(request), request["known"])))
    return 0
