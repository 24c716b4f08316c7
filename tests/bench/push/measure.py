"""How fast data gets to hosts, beside what else copies files; see README.md."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.progress import counted, say
from tests.bench.project import CHECKOUT
from tests.bench.push import data, senders
from tests.bench.push.deployed import Deployed
from tests.bench.push.senders import (
    ANSIBLE,
    COMMAND,
    FEW,
    OURS,
    PYINFRA,
    RSYNC,
    SCP,
    SCP_FLUSHED,
    SCP_OLD,
    TAR,
    TAR_FLUSHED,
    Load,
    Senders,
    Sent,
)
from tests.bench.results import Results, Target, machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lab.lab import Host, Lab

ONE, SIX = "one host", "six hosts"
MBIT = 100.0
NARROW = "100 Mbit/s"
DEPLOY = "tailtrain's whole deploy"
UNCHANGED = "nothing changed"
ADDED = "one host added"
MAIN = (OURS, SCP, RSYNC, TAR)
MORE = (SCP_FLUSHED, TAR_FLUSHED, SCP_OLD)
SLOW = (PYINFRA, ANSIBLE)
"""One round is enough to tell: they take ten times as long and more."""

# Around the data of a full packet in the tunnel: IPv4 and TCP with its time stamps; then WireGuard's header
# and tag, UDP, IPv4 and Ethernet.
_INNER, _OUTER = 20 + 32, 32 + 8 + 20 + 14


@dataclass(frozen=True)
class Rounds:
    """How often each is run: over links as they are, and over narrow ones, which take long."""

    full: int
    narrow: int


def measured(lab: Lab, ansible: Path, rounds: Rounds, megabytes: int) -> Results:
    """All benchmarks of it, in one run on one machine."""
    results = Results(facts=machine())
    folder = CHECKOUT / ".tailtrain" / "bench-push"
    dataset = folder / f"{megabytes}.parquet"
    say(f"a data set of {megabytes} MB ...")
    data.make(dataset, megabytes)
    deployed = Deployed(lab, folder / "project", dataset)
    deployed.make()
    hosts = {name: lab.host(name) for name in lab.state.hosts}
    try:
        _lift(hosts)
        _measure(results, lab, deployed, folder, ansible, rounds)
    finally:
        lab.link.narrow(None)
        for host in hosts.values():
            host.link.narrow(None)
            host.set_cpu_quota(host.state.cpu_quota_cores)
    return results


def _measure(
    results: Results, lab: Lab, deployed: Deployed, folder: Path, ansible: Path, rounds: Rounds
) -> None:
    names = list(lab.state.hosts)
    results.figures["line, Mbit/s"] = MBIT * _share_of_data(lab)
    for case, hosts in ((ONE, names[:1]), (SIX, names)):
        deployed.begin(hosts)
        say(f"{case}: the data set is cut and sent once ...")
        deployed.distribute()
        loads = _loads(deployed, folder / "loads" / case.replace(" ", "-"), hosts)
        files = [path for load in loads.values() for path in load.folder.iterdir()]
        results.figures[f"{case}, chunks"] = len(files)
        results.figures[f"{case}, bytes"] = sum(path.stat().st_size for path in files)
        most = max(len(list(load.folder.iterdir())) for load in loads.values())
        results.figures[f"{case}, most chunks of a host"] = most
        those = Senders(lab, loads, folder / "work" / case.replace(" ", "-"), ansible)
        _alternate(results, those, case, (*MAIN, *MORE) if case == ONE else MAIN, rounds.full, deployed)
        _once(results, those, case)
        _narrow(lab, MBIT)
        _alternate(results, those, f"{case}, {NARROW}", MAIN, rounds.narrow)
        if case == ONE:
            _once(results, those, f"{case}, {NARROW}")
        _narrow(lab, None)
    for _ in counted(rounds.full, UNCHANGED):
        before = _received(lab)
        results.add(UNCHANGED, deployed.unchanged())
        most = max(now - before[name] for name, now in _received(lab).items())
        results.figures[f"{UNCHANGED}, bytes to a host"] = most
    say(ADDED)
    deployed.begin(names[:-1])
    deployed.distribute()
    added = deployed.add(names)
    results.add(ADDED, added.seconds)
    for figure in ("moved", "least", "boundaries", "largest"):
        results.figures[f"{ADDED}, {figure}"] = getattr(added, figure)


def _alternate(
    results: Results,
    those: Senders,
    case: str,
    names: Sequence[str],
    rounds: int,
    deployed: Deployed | None = None,
) -> None:
    """Each in turn, round by round, so that disturbances hit all alike.

    With whole deploys among them, a first round does not count.
    """
    uncounted = 1 if deployed is not None else 0
    for number in counted(rounds + uncounted, case):
        for name in names:
            sent = _sent(those, name)
            if number < uncounted:
                continue
            results.add(f"{case}: {name}", senders.transfer_seconds(sent) if name == OURS else sent.seconds)
            if name == OURS:
                results.add(f"{case}: {COMMAND}", sent.seconds)
        if deployed is not None:
            deployed.forget_chunks()
            seconds = deployed.distribute()
            if number >= uncounted:
                results.add(f"{case}: {DEPLOY}", seconds)


def _once(results: Results, those: Senders, case: str) -> None:
    for name in SLOW:
        say(f"{case}: {name}")
        results.add(f"{case}: {name}", _sent(those, name).seconds)


def _sent(those: Senders, name: str) -> Sent:
    """One run; a second try where it fails, for a lost connection is not to cost all that was measured."""
    try:
        return those.run(name)
    except RuntimeError as error:
        say(f"once more, since {error}")
        return those.run(name)


def _loads(deployed: Deployed, folder: Path, hosts: Sequence[str]) -> dict[str, Load]:
    """What tailtrain's deploy has sent to each host, for the others to send the same."""
    shutil.rmtree(folder, ignore_errors=True)
    loads = {}
    for host in hosts:
        chunks = deployed.shares()[host]
        load = Load(deployed.lab.host(host).address, folder / host / "chunks", folder / host / "few")
        for place, some in ((load.folder, chunks), (load.few, chunks[:FEW])):
            place.mkdir(parents=True)
            for chunk in some:
                os.link(deployed.chunk_dir / chunk, place / chunk)
        loads[host] = load
    return loads


def _narrow(lab: Lab, mbit: float | None) -> None:
    """Every link of the lab, the control side's among them."""
    for link in (lab.link, *(lab.host(name).link for name in lab.state.hosts)):
        link.narrow(mbit)


def _lift(hosts: Mapping[str, Host]) -> None:
    """Whole processors, as real hosts have; the lab's shares of one are for training at unequal speed."""
    for host in hosts.values():
        host.set_cpu_quota(None)


def _share_of_data(lab: Lab) -> float:
    """How much of what a link carries can be data, through the tailnet's tunnel."""
    (tunnel,) = json.loads(lab.on_control(["ip", "-json", "link", "show", "tailscale0"]).stdout)
    mtu = int(tunnel["mtu"])
    return (mtu - _INNER) / (mtu + _OUTER)


def _received(lab: Lab) -> dict[str, int]:
    """By host, the bytes that its link has ever brought it."""
    found = {}
    for name in lab.state.hosts:
        lines = lab.host(name).run("cat", "/proc/net/dev").stdout.splitlines()
        (words,) = (line.split() for line in lines if line.lstrip().startswith("eth0:"))
        found[name] = int(words[1])
    return found


def line_rate(results: Results, case: str, name: str) -> float:
    """How much of what the narrow link can carry a sender made use of; 1 is all of it."""
    seconds = results.median(f"{case}, {NARROW}: {name}")
    return results.figures[f"{case}, bytes"] * 8 / 1e6 / seconds / results.figures["line, Mbit/s"]


def ratios(results: Results) -> str:
    """Seconds of each against scp's; over narrow links, the part of the line rate."""
    lines = []
    for case in (ONE, SIX):
        prefix = f"{case}: "
        names = [name.removeprefix(prefix) for name in results.seconds if name.startswith(prefix)]
        of_scp = [
            f"{name} {results.ratio(prefix + name, prefix + SCP):.2f}"
            for name in names
            if name not in (SCP, ANSIBLE)
        ]
        lines.append(f"{case}, in times of scp -r: {'; '.join(of_scp)}")
        rates = [f"{name} {line_rate(results, case, name):.1%}" for name in MAIN]
        lines.append(f"{case}, of the line rate at {NARROW}: {'; '.join(rates)}")
    figures = [f"{name}: {value:,.0f}" for name, value in results.figures.items()]
    return "\n".join([*lines, *figures])


def targets(results: Results) -> Iterator[Target]:
    """What was promised."""
    of_scp = results.ratio(f"{ONE}: {OURS}", f"{ONE}: {SCP}")
    yield Target("one host, in times of scp -r (hashed and flushed; scp not)", of_scp, 1.1, "x")
    for case in (ONE, SIX):
        yield Target(f"{case}, of the line rate", line_rate(results, case, OURS) * 100, 95, "%", least=True)
    yield Target("nothing changed, per host", results.median(UNCHANGED) / 6, 0.2, "s")
    figures = results.figures
    moved, least = (figures[f"{ADDED}, {figure}"] for figure in ("moved", "least"))
    allowed = least + figures[f"{ADDED}, boundaries"] * figures[f"{ADDED}, largest"]
    yield Target("one host added, moved", moved / 1e6, round(allowed / 1e6, 2), "MB")
