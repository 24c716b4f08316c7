"""Who is compared: the command of each, and how its output says that it found nothing to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.project import DEPLOY, NOTHING_TO_DO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.lab import Lab

HERE = Path(__file__).parent
START_UP = "pyinfra's start-up"
OURS = "tailtrain"
ONE_HOST = "tailtrain, one host"
PYINFRA = "pyinfra operations"
ANSIBLE = "Ansible"
PIPELINING = "Ansible, pipelining, retries"

# `failed` alone would find "failed=0".
_ANSIBLE_RESULT = re.compile(r"ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)")
_PYINFRA_TOTAL = re.compile(r"Grand total +(\d+) +(\S+) +(\S+) +(\S+)")


@dataclass(frozen=True)
class Contender:
    """A command on the control side that should find nothing to do.

    Attributes:
        name: as it stands in the results.
        argv: the command.
        environment: added to that of the control side.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, lab: Lab, folder: Path) -> float:
        """Run it once, in this folder: the seconds that it took.

        Raises:
            RuntimeError: it failed, or changed something; with the end of what it said.
        """
        argv = lab.control_command(self.argv, cwd=folder)
        environment = usual({**lab.control_environment(), **self.environment})
        started = time.perf_counter()
        done = subprocess.run(
            argv, env=environment, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        seconds = time.perf_counter() - started
        said = done.stdout + done.stderr
        if done.returncode != 0 or not idle(self.name, said):
            message = f"{self.name} failed, or did more than nothing; it ended:\n{said[-3000:]}"
            raise RuntimeError(message)
        return seconds


def usual(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python keeps what it compiled, as it does unless it is told not to."""
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}


def idle(name: str, said: str) -> bool:
    """Whether what a contender said means that everything was as it should be, on every host."""
    if name in (OURS, ONE_HOST):
        return NOTHING_TO_DO.search(said) is not None
    if name in (ANSIBLE, PIPELINING):
        results = _ANSIBLE_RESULT.findall(said)
        return bool(results) and all(result == ("0", "0", "0") for result in results)
    if name == PYINFRA:
        total = _PYINFRA_TOTAL.search(said)
        return total is not None and total[2] == total[3] == "-" and total[1] == total[4]
    return True


def contenders(lab: Lab, same: Path, ansible: Path) -> list[Contender]:
    """All of them.

    Args:
        lab: the lab; Ansible's open connections are kept with its state, and go when it goes.
        same: the folder that `same_state.write` made.
        ansible: the folder with `ansible-playbook`.
    """
    pyinfra = str(Path(sys.executable).with_name("pyinfra"))
    sockets = lab.settings.state / "ssh"
    sockets.mkdir(exist_ok=True)
    playbook = (
        str(ansible.absolute() / "ansible-playbook"),
        *("-i", str(same / "inventory.json")),
        str(HERE / "ansible/playbook.yml"),
    )
    settings = {
        "ANSIBLE_CONFIG": str(HERE / "ansible/ansible.cfg"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_HOME": str(same / "ansible"),
        "PATH": f"{ansible.absolute()}:{os.environ.get('PATH', os.defpath)}",
    }
    # Without retries most hosts are lost.
    pipelining = {"ANSIBLE_PIPELINING": "true", "ANSIBLE_SSH_RETRIES": "10"}
    return [
        Contender(START_UP, (pyinfra, "--version")),
        Contender(ONE_HOST, (pyinfra, "--limit", next(iter(lab.state.hosts)), *DEPLOY[1:])),
        Contender(OURS, (pyinfra, *DEPLOY[1:])),
        Contender(PYINFRA, (pyinfra, "-y", str(same / "inventory.py"), str(HERE / "plain/deploy.py"))),
        Contender(ANSIBLE, playbook, settings),
        Contender(PIPELINING, playbook, {**settings, **pipelining}),
    ]
