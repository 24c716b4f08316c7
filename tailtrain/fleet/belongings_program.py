"""Looks for what tailtrain has put on a host: runs there as plain Python, and changes nothing.

Its source is sent to the host after those of `files_program` and `lock_program`, before that of
`undo_program`, and uses nothing but the standard library. All places come with the request.
"""

from __future__ import annotations

import glob
import grp
import os
import pwd
import re
import subprocess

from tailtrain.fleet.files_program import Document, read, read_json
from tailtrain.fleet.lock_program import observed_lock

STOP_SECONDS = 90


def size_of(path: str) -> int:
    """The bytes of all files below a folder, or of a file itself; symbolic links are not followed."""
    if os.path.islink(path) or not os.path.isdir(path):
        return os.lstat(path).st_size if os.path.lexists(path) else 0
    total, folders = 0, [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_symlink():
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # it is going away at this moment
            continue
    return total


def mount_points() -> list[str]:
    """Where something is mounted (proc(5): the fifth field); a bind mount shows here and nowhere else."""
    fields = (line.split(" ") for line in (read("/proc/self/mountinfo") or "").splitlines())
    # The kernel writes a space as \\040, and so on.
    return [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field[4]) for field in fields]


def unexpected(folders: list[str]) -> list[str]:
    """Why folders are not as tailtrain makes them, so that nothing must be removed; empty where they are."""
    mounts, found = mount_points(), []
    for folder in folders:
        if os.path.islink(folder):
            found.append(f"{folder} is a symbolic link to {os.readlink(folder)}")
        elif os.path.lexists(folder) and not os.path.isdir(folder):
            found.append(f"{folder} is no folder")
        else:
            real = os.path.realpath(folder)
            found += [
                f"{place} is a mount point"
                for place in sorted({m for m in mounts if m == real or m.startswith(real + "/")})
            ]
    return list(dict.fromkeys(found))


def systemctl(*words: str) -> str:
    """What systemctl prints; nothing where there is no systemd, or it does not answer in time."""
    try:
        return subprocess.run(
            ["systemctl", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def unit_files(request: Document, unit: str) -> list[str]:
    """The files of a unit: its own, and the links that start it when the host boots."""
    own = os.path.join(request["unit_dir"], unit)
    links = glob.glob(os.path.join(glob.escape(request["unit_dir"]), "*.wants", unit))
    return [path for path in (*links, own) if os.path.lexists(path)]


def masked_for_ours(request: Document) -> list[str]:
    """Units that are masked, where the one of ours is there for whose sake that was done."""
    return [
        masked
        for ours, masked in request["masked"].items()
        if unit_files(request, ours)
        and os.path.realpath(os.path.join(request["unit_dir"], masked)) == os.devnull
    ]


def unit_state(unit: str) -> Document:
    """Whether a unit runs and whether it starts at boot, in systemd's words."""
    shown = systemctl("show", "-p", "ActiveState,UnitFileState", unit)
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return {
        "active": values.get("ActiveState", "inactive"),
        "enabled": values.get("UnitFileState") == "enabled",
    }


def account_of(request: Document) -> pwd.struct_passwd | None:
    """The account, if it is the one that tailtrain makes: another one of that name is none of ours."""
    try:
        found = pwd.getpwnam(request["account"])
    except KeyError:
        return None
    return found if found.pw_dir == request["home"] else None


def group_of(request: Document) -> grp.struct_group | None:
    """The account's group, where nobody else is in it."""
    try:
        found = grp.getgrnam(request["account"])
    except KeyError:
        return None
    others = [user for user in pwd.getpwall() if user.pw_gid == found.gr_gid]
    return None if found.gr_mem or others else found


def runs(folder: str) -> list[Document]:
    """Each run that is kept here."""
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        place = os.path.join(folder, name)
        model = os.path.join(place, "final", "model.safetensors")
        status = read_json(os.path.join(place, "status.json"))
        last_round = status.get("round", -1)
        found.append(
            {
                "run_id": name,
                "state": str(status.get("state", "")),
                "round": last_round if isinstance(last_round, int) else -1,
                "bytes": size_of(place),
                "model_bytes": size_of(model) if os.path.isfile(model) else 0,
                "model_sha256": str(
                    read_json(os.path.join(place, "final", "manifest.json")).get("sha256", "")
                ),
            }
        )
    return found


def packages(names: list[str]) -> list[str]:
    """Which of these Debian packages are installed."""
    try:
        shown = subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    installed = {line.split()[1] for line in shown.splitlines() if line.startswith("installed ")}
    return [name for name in names if name in installed]


def look(request: Document) -> Document:
    """What of ours is here; changes nothing."""
    units = {unit: files for unit in request["units"] if (files := unit_files(request, unit))}
    return {
        "superuser": os.geteuid() == 0,
        "unexpected": unexpected([*request["parents"], *request["folders"]]),
        "units": {unit: unit_state(unit) for unit in units},
        "unit_bytes": sum(size_of(path) for files in units.values() for path in files),
        "places": {path: size_of(path) for path in request["places"] if os.path.lexists(path)},
        "account": account_of(request) is not None or group_of(request) is not None,
        "run_id": str(read_json(request["config"]).get("run_id", "")),
        "runs": runs(request["runs"]),
        "receipt": read(request["receipt"]),
        "lock": observed_lock(),
        "left": packages(request["packages"]),
        "masked": masked_for_ours(request),
    }
