"""How fast each host trains by itself: one after the other, and all at once without a word between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tailtrain.planning import layout
from tests.bench.progress import say
from tests.bench.train.hosts import Hosts, install, python

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Collection, Mapping

Speeds = dict[str, float]
"""Tokens per second by host."""


def measured(hosts: Hosts, seconds: float, folder: Path) -> tuple[Speeds, Speeds]:
    """Each host's speed while the other hosts idle, and while all train at once, each for itself.

    The difference of the sums is what the lab's hosts take from each other because they are one machine:
    caches and memory, and whatever else the machine does. No training can win it back; real hosts lose
    nothing.

    Args:
        hosts: with the data distributed.
        seconds: of each measurement.
        folder: for what the programs say.
    """
    program = install(hosts, Path(__file__).with_name("alone.py"))
    command = [*python(hosts), program, layout.CONFIG]
    hosts.lift()
    with hosts.running(dict.fromkeys(hosts.names, command), folder) as programs:
        for name, running in programs.items():
            if _line(running).strip() != "ready":
                message = f"cannot train alone on {name}; see {folder / name}.log"
                raise RuntimeError(message)
        hosts.limit()
        one_by_one: Speeds = {}
        for name in hosts.names:
            say(f"{name} alone, {seconds:g} s")
            one_by_one |= _at_once(programs, [name], seconds)
        say(f"all at once, each for itself, {seconds:g} s")
        return one_by_one, _at_once(programs, hosts.names, seconds)


def _at_once(programs: Mapping[str, subprocess.Popen[str]], names: Collection[str], seconds: float) -> Speeds:
    for name in names:
        pipe = _pipe(programs[name].stdin)
        pipe.write(f"{seconds}\n")
        pipe.flush()
    found = {name: json.loads(_line(programs[name])) for name in names}
    return {name: each["tokens"] / each["seconds"] for name, each in found.items()}


def _line(program: subprocess.Popen[str]) -> str:
    return _pipe(program.stdout).readline()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
