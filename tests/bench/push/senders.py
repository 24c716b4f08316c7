"""Who is compared in pushing files: the command of each."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.contenders import usual
from tests.bench.same_state import known_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.lab import Lab

HERE = Path(__file__).parent
ANSIBLE_DIR = HERE.parent / "ansible"
PLACE = "/var/tmp/tailtrain-bench"
TARGET = f"{PLACE}/chunks"
OURS = "tailtrain's transfer"
COMMAND = "tailtrain's transfer, as a command"
SCP, SCP_FLUSHED, SCP_OLD = "scp -r", "scp -r, flushed", "scp -O -r"
RSYNC = "rsync -a"
TAR, TAR_FLUSHED = "tar over ssh", "tar over ssh, flushed"
PYINFRA = "pyinfra files.put"
FEW = 16
ANSIBLE = f"Ansible copy, {FEW} chunks a host"


@dataclass(frozen=True)
class Load:
    """What is sent to a host.

    Attributes:
        address: of the host.
        folder: with the files, named `chunks`.
        few: with the first `FEW` of them.
    """

    address: str
    folder: Path
    few: Path


@dataclass(frozen=True)
class Sent:
    """One run of one sender.

    Attributes:
        seconds: of the whole command.
        said: what it printed.
    """

    seconds: float
    said: str


class Senders:
    """All of them, for one set of loads.

    Args:
        lab: the lab.
        loads: by host.
        work: a folder for their inventories.
        ansible: the folder with `ansible-playbook`.
    """

    def __init__(self, lab: Lab, loads: Mapping[str, Load], work: Path, ansible: Path) -> None:
        self._lab, self._loads, self._work = lab, loads, work
        self._ansible = ansible.absolute()
        work.mkdir(parents=True, exist_ok=True)
        self._known_hosts = work / "known_hosts"
        self._known_hosts.write_text(known_hosts(lab))

    def run(self, name: str) -> Sent:
        """Send everything once, to hosts that have nothing of it.

        Raises:
            RuntimeError: it failed, or not all is there; with the end of what it said.
        """
        self._clear()
        argv, environment = self._command(name)
        argv = self._lab.control_command(argv, cwd=self._work)
        started = time.perf_counter()
        done = subprocess.run(
            argv,
            env=usual({**self._lab.control_environment(), **environment}),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - started
        if done.returncode != 0:
            message = f"{name} failed; it ended:\n{(done.stdout + done.stderr)[-3000:]}"
            raise RuntimeError(message)
        self._check(name)
        return Sent(seconds, done.stdout)

    def _command(self, name: str) -> tuple[list[str], Mapping[str, str]]:
        shell = self._shell().get(name)
        if shell is not None:
            return ["sh", "-c", self._for_all(shell)], {}
        if name == OURS:
            pairs = [f"{host}={load.folder}" for host, load in self._loads.items()]
            return [sys.executable, "-m", "tests.bench.push.transfer", TARGET, *pairs], {
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [str(HERE.parents[2]), os.environ.get("PYTHONPATH")])
                )
            }
        if name == PYINFRA:
            return [
                str(Path(sys.executable).with_name("pyinfra")),
                "-y",
                self._inventory(),
                str(HERE / "files_put.py"),
            ], {}
        return self._playbook()

    def _shell(self) -> dict[str, Callable[[str, str], str]]:
        """By name, the shell line that sends a folder to an address."""
        options = f"-o UserKnownHostsFile={self._known_hosts} -o StrictHostKeyChecking=yes -o LogLevel=ERROR"
        flush = f"ssh {options} root@%s sync -f {PLACE}"

        def scp(more: str = "") -> Callable[[str, str], str]:
            return lambda folder, to: f"scp -q {more} -r {options} {folder} root@{to}:{PLACE}/"

        def rsync(folder: str, to: str) -> str:
            return f"rsync -a -e {shlex.quote(f'ssh {options}')} {folder} root@{to}:{PLACE}/"

        def tar(folder: str, to: str) -> str:
            place = shlex.quote(str(Path(folder).parent))
            return f"tar -C {place} -cf - chunks | ssh {options} root@{to} tar -C {PLACE} -xf -"

        def flushed(line: Callable[[str, str], str]) -> Callable[[str, str], str]:
            return lambda folder, to: f"{line(folder, to)} && {flush % to}"

        return {
            SCP: scp(),
            SCP_FLUSHED: flushed(scp()),
            SCP_OLD: scp("-O"),
            RSYNC: rsync,
            TAR: tar,
            TAR_FLUSHED: flushed(tar),
        }

    def _for_all(self, line: Callable[[str, str], str]) -> str:
        """A script that does all hosts at once and fails if one does."""
        lines = [f'({line(str(load.folder), load.address)}) & all="$all $!"' for load in self._loads.values()]
        return "\n".join(["all=", *lines, "for one in $all; do wait $one || exit 1; done"])

    def _inventory(self) -> str:
        path = self._work / "inventory.py"
        hosts = [
            (f"@tailscale/{host}", {"ssh_user": "root", "source": str(load.folder), "target": TARGET})
            for host, load in self._loads.items()
        ]
        path.write_text(f"nodes = {hosts!r}\n")
        return str(path)

    def _playbook(self) -> tuple[list[str], Mapping[str, str]]:
        path = self._work / "inventory.json"
        hosts = {
            host: {"ansible_host": load.address, "source": str(load.few), "target": TARGET}
            for host, load in self._loads.items()
        }
        pinned = f"-o UserKnownHostsFile={self._known_hosts} -o StrictHostKeyChecking=yes"
        common = {"ansible_user": "root", "ansible_ssh_common_args": pinned}
        path.write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}, indent=1))
        sockets = self._lab.settings.state / "ssh"
        sockets.mkdir(exist_ok=True)
        argv = [str(self._ansible / "ansible-playbook"), "-i", str(path), str(ANSIBLE_DIR / "push.yml")]
        return argv, {
            "ANSIBLE_CONFIG": str(ANSIBLE_DIR / "ansible.cfg"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
            "ANSIBLE_HOME": str(self._work / "ansible"),
            "PATH": f"{self._ansible}:{os.environ.get('PATH', os.defpath)}",
        }

    def _clear(self) -> None:
        """Nothing there, and nothing of the run before still on its way to the disk."""
        for host in self._loads:
            self._lab.host(host).run("sh", "-c", f"rm -rf {PLACE} && mkdir -p {TARGET} && sync -f {PLACE}")

    def _check(self, name: str) -> None:
        for host, load in self._loads.items():
            sent = load.few if name == ANSIBLE else load.folder
            wanted = sorted(f"{path.name} {path.stat().st_size}" for path in sent.iterdir())
            find = ("find", TARGET, "-mindepth", "1", "-name", "[!.]*", "-printf", "%f %s\\n")
            found = self._lab.host(host).run(*find).stdout
            if sorted(found.splitlines()) != wanted:
                message = f"{name} did not bring all of the chunks to {host}"
                raise RuntimeError(message)


def transfer_seconds(sent: Sent) -> float:
    """The part of tailtrain's command that is the transfer: logins and all, without Python's start."""
    return float(json.loads(sent.said.splitlines()[-1])["seconds"])
