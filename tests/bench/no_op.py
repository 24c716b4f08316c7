"""What a deploy costs that finds nothing to do, beside plain pyinfra and Ansible; see README.md."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import large_fleet, same_state
from tests.bench.contenders import ANSIBLE, ONE_HOST, OURS, PIPELINING, PYINFRA, START_UP, contenders
from tests.bench.progress import counted, say
from tests.bench.project import CHECKOUT, Project
from tests.bench.results import Results, Target, machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.lab import Lab
    from tests.bench.contenders import Contender

ONE_WAY_SECONDS = 0.025
FAR = "at 50 ms"
LIMITED = "on slow processors"
LARGE = "plan for 1,000 hosts"


def measured(lab: Lab, ansible: Path, rounds: int, far_rounds: int, large_rounds: int) -> Results:
    """All benchmarks of it, in one run on one machine."""
    results = Results(facts=machine())
    project = Project(lab, CHECKOUT / ".tailtrain" / "bench")
    project.folder.mkdir(parents=True, exist_ok=True)
    project.make()
    say("training, so that there is nothing left to do ...")
    project.finish()
    compared = same_state.write(
        lab, project.folder / ".tailtrain" / "datasets" / "chunks", project.folder / "same"
    )
    say(f"up to {compared} files, folders and units are compared on a host")
    all_of_them = contenders(lab, project.folder / "same", ansible)
    hosts = [lab.host(name) for name in lab.state.hosts]
    try:
        # Whole processors, as real hosts have; the lab's shares of one are for training at unequal speed.
        for host in hosts:
            host.set_cpu_quota(None)
        alternate(results, project, all_of_them, rounds + 1, "", uncounted=1)
        lab.slow_down(ONE_WAY_SECONDS)
        alternate(results, project, all_of_them, far_rounds, f" {FAR}")
        lab.slow_down(0)
        for host in hosts:
            host.set_cpu_quota(host.state.cpu_quota_cores)
        ours = [each for each in all_of_them if each.name in (OURS, PYINFRA)]
        alternate(results, project, ours, far_rounds, f" {LIMITED}")
    finally:
        lab.slow_down(0)
        for host in hosts:
            host.set_cpu_quota(host.state.cpu_quota_cores)
    with tempfile.TemporaryDirectory() as folder:
        large_fleet.make(Path(folder), 1000)
        for number in counted(large_rounds, LARGE):
            del number
            found = large_fleet.measure(Path(folder))
            results.add(LARGE, found["seconds"], int(found["bytes"]))
    return results


def alternate(
    results: Results,
    project: Project,
    those: Sequence[Contender],
    rounds: int,
    suffix: str,
    *,
    uncounted: int = 0,
) -> None:
    """Each in turn, round by round, so that disturbances hit all alike; the first rounds may not count."""
    for number in counted(rounds, f"no-op{suffix}"):
        for contender in those:
            seconds = contender.run(project.lab, project.folder)
            if number >= uncounted:
                results.add(f"{contender.name}{suffix}", seconds)


def ratios(results: Results) -> str:
    """Our no-op against the others'."""
    lines = []
    for suffix, where in (("", "round trip below 1 ms"), (f" {FAR}", "round trip 50 ms")):
        times = [
            f"{results.ratio(f'{other}{suffix}', f'{OURS}{suffix}'):.1f} times as fast as {other}"
            for other in (PYINFRA, ANSIBLE, PIPELINING)
        ]
        lines.append(f"{where}: {'; '.join(times)}")
    lines.append(f"six hosts: {results.ratio(OURS, START_UP):.1f} start-ups of pyinfra")
    return "\n".join(lines)


def targets(results: Results) -> Iterator[Target]:
    """What was promised."""
    yield Target("no-op of one host, in start-ups of pyinfra", results.ratio(ONE_HOST, START_UP), 2, "x")
    yield Target("no-op, as a part of plain pyinfra's", results.ratio(OURS, PYINFRA), 1 / 2, "x")
    yield Target("no-op, as a part of Ansible's", results.ratio(OURS, ANSIBLE), 1 / 10, "x")
    yield Target("no-op at a round trip of 50 ms", results.median(f"{OURS} {FAR}"), 1.5, "s")
    yield Target("plan for 1,000 hosts", results.median(LARGE), 10, "s")
    yield Target("memory of that plan", results.memory[LARGE] / 1e6, 400, "MB")
