"""The lab's hosts while they are measured: their shares of processors, programs on them, what they send.

What can be read from outside is: the machine sees every host's files, counters and processes, and reading
them from here takes no processor time of the host's.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab import cgroups
from tailtrain.planning import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lab.lab import Host, Lab

PART = 0.9
"""Of the lab's own shares, which are 95 % of the machine. The rest, 15 % of it, is for the control side, the
kernel and this program, so that all hosts can have what they are promised at the same time."""

_DEVICE = "tailscale0:"
_SENT = 9  # the column of bytes sent in /proc/net/dev, the device's name being column 0


class Memory(NamedTuple):
    """Bytes that a worker has.

    Attributes:
        own: what its processes have for themselves, and what they share with each other, once.
        files: pages of libraries and other files of the process that has most; the kernel can let go of them.
            Not the proportional share: the hosts of a lab share these pages, real hosts do not.
    """

    own: int
    files: int


class Hosts:
    """The hosts of a lab that is up, by name."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.by_name: dict[str, Host] = {name: lab.host(name) for name in lab.state.hosts}

    @property
    def names(self) -> list[str]:
        """Of all hosts, the primary first."""
        return list(self.by_name)

    @property
    def quotas(self) -> Mapping[str, float]:
        """The cores' worth of time that each host has while it is measured."""
        return {name: host.state.cpu_quota_cores * PART for name, host in self.by_name.items()}

    def limit(self) -> None:
        """Make the hosts unequal: each has its share of the machine."""
        for name, quota in self.quotas.items():
            self.by_name[name].set_cpu_quota(quota)

    def lift(self) -> None:
        """Give all hosts whole processors: importing torch with a tenth of one takes a minute."""
        for host in self.by_name.values():
            host.set_cpu_quota(None)

    def root(self, name: str) -> Path:
        """A host's root folder, seen from the machine."""
        return Path(f"/proc/{self._init(name)}/root")

    def read(self, name: str, path: str) -> str:
        """A file of a host; empty where there is none."""
        try:
            return (self.root(name) / path.lstrip("/")).read_text()
        except OSError:
            return ""

    def outside(self, name: str, *argv: str) -> str:
        """What a command says that sees a host's files and network, and takes nothing of its share."""
        command = ["nsenter", f"--target={self._init(name)}", "--mount", "--net", "--", *argv]
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.stdout

    def sent(self) -> int:
        """Bytes that all hosts together have ever given to the tailnet's device."""
        total = 0
        for name in self.by_name:
            lines = Path(f"/proc/{self._init(name)}/net/dev").read_text().splitlines()
            total += next(int(line.split()[_SENT]) for line in lines if line.split()[0] == _DEVICE)
        return total

    def worker_memory(self, name: str) -> Memory:
        """What a host's worker has now."""
        own = files = 0
        for pid in cgroups.processes(self.lab.settings.cgroup, name):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                if b"tailtrain.worker" not in command and b"p2pd" not in command:
                    continue
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue  # it has just ended
            sizes = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
            own += sizes["Pss_Anon:"] + sizes["Pss_Shmem:"]
            files = max(files, sizes["Rss:"] - sizes["Anonymous:"] - sizes["Pss_Shmem:"])
        return Memory(own * 1024, files * 1024)

    def _init(self, name: str) -> int:
        init = self.by_name[name].state.init
        assert init is not None, name
        return init.pid

    @contextmanager
    def running(
        self, commands: Mapping[str, Sequence[str]], folder: Path
    ) -> Iterator[dict[str, subprocess.Popen[str]]]:
        """A program on each host, spoken with by lines; ended with the block, whatever becomes of it.

        Args:
            commands: by host.
            folder: here, for what they say to standard error.
        """
        folder.mkdir(parents=True, exist_ok=True)
        programs: dict[str, subprocess.Popen[str]] = {}
        try:
            for name, command in commands.items():
                with (folder / f"{name}.log").open("w") as log:
                    programs[name] = subprocess.Popen(
                        self.by_name[name].command(command),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
            yield programs
        finally:
            for name, program in programs.items():
                # First what runs there, for it holds the pipes as well.
                self.by_name[name].run("pkill", "-KILL", "-f", PLACE, check=False)
                program.kill()
                program.communicate()


PLACE = "/srv/tailtrain-bench"
"""The folder on each host with the benchmark's own programs; their command lines all name it."""


def install(hosts: Hosts, program: Path) -> str:
    """Put a program of the benchmark on all hosts; its path there."""
    path = f"{PLACE}/{program.name}"
    for host in hosts.by_name.values():
        host.run("mkdir", "-p", PLACE)
        host.run("tee", path, input=program.read_text(), stdin=None)
    return path


def python(hosts: Hosts) -> list[str]:
    """How a program is run with the worker's environment and code, as its unit says."""
    unit = hosts.read(hosts.names[0], f"{layout.UNIT_DIR}/{layout.WORKER_UNIT}")
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and line[0] != "#")
    interpreter = settings["ExecStart"].split()[0]
    variables = [line.split("=", 1)[1] for line in unit.splitlines() if line.startswith("Environment=")]
    return ["env", *variables, interpreter, "-u"]
