"""The same hosts with torch's own DistributedDataParallel, started by torchrun as its manual says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tests.bench.progress import say
from tests.bench.train.hosts import PLACE, install, python

if TYPE_CHECKING:
    from tests.bench.train.hosts import Hosts

_PORT = 29_500
_LOG = f"{PLACE}/steps.log"
_WARM_STEPS = 3
_START_SECONDS = 600


@dataclass(frozen=True)
class Ddp:
    """What it did.

    Attributes:
        tokens_per_second: of all hosts together.
        bytes_per_token: that all hosts together gave to the tailnet's device.
        steps: that were measured.
    """

    tokens_per_second: float
    bytes_per_token: float
    steps: int


def measured(hosts: Hosts, seconds: float, folder: Path) -> Ddp:
    """Train with it on all hosts for some seconds, with nothing else running there.

    Raises:
        RuntimeError: it does not come to train; with where to look.
    """
    program = install(hosts, Path(__file__).with_name("ddp.py"))
    primary = hosts.names[0]
    hosts.by_name[primary].run("rm", "-f", _LOG)
    environment, (interpreter, *options) = _split(python(hosts))
    commands = {
        name: [
            *environment,
            # Else gloo takes the address that the host's own name has: loopback.
            "GLOO_SOCKET_IFNAME=tailscale0",
            interpreter,
            *options,
            *("-m", "torch.distributed.run", f"--nnodes={len(hosts.names)}", "--nproc-per-node=1"),
            *(f"--node-rank={rank}", f"--master-addr={hosts.by_name[primary].address}"),
            *(f"--master-port={_PORT}", f"--local-addr={hosts.by_name[name].address}"),
            *(program, layout.CONFIG, _LOG),
        ]
        for rank, name in enumerate(hosts.names)
    }
    hosts.lift()
    with hosts.running(commands, folder):
        say("DistributedDataParallel starts ...")
        deadline = time.monotonic() + _START_SECONDS
        while len(_steps(hosts)) < _WARM_STEPS:
            if time.monotonic() > deadline:
                message = f"DistributedDataParallel does not train within {_START_SECONDS} s; see {folder}"
                raise RuntimeError(message)
            time.sleep(0.2)
        hosts.limit()
        first = _next_step(hosts, len(_steps(hosts)) + 1)
        sent = hosts.sent()
        time.sleep(seconds)
        last = _next_step(hosts, first + 1)
        sent = hosts.sent() - sent
    log = _steps(hosts)
    (began, before), (ended, after) = log[first - 1], log[last - 1]
    tokens = after - before
    return Ddp(tokens / (ended - began), sent / tokens, last - first)


def _next_step(hosts: Hosts, least: int) -> int:
    """Wait for the end of a step, this one at the earliest, to read counters between two; its number."""
    before = len(_steps(hosts))
    while (now := len(_steps(hosts))) == before or now < least:
        time.sleep(0.02)
    return now


def _steps(hosts: Hosts) -> list[tuple[float, int]]:
    """The steps so far: when each was over (unix seconds), and the tokens of all hosts until then."""
    lines = hosts.read(hosts.names[0], _LOG).split("\n")[:-1]
    return [(float(when), int(tokens)) for when, tokens in (line.split() for line in lines)]


def _split(command: list[str]) -> tuple[list[str], list[str]]:
    """A command of `env`: it with its variables, and what it runs."""
    end = next(at for at, word in enumerate(command) if at and "=" not in word)
    return command[:end], command[end:]
