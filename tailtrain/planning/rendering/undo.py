"""The plan of an undo as text, what is asked before it, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.parts import counted, megabytes
from tailtrain.planning.rendering.text import printable, table, wrapped
from tailtrain.planning.undoing import DATA, PROGRAMS, UndoHost, UndoPlan, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tailtrain.planning.undoing import EndingRun, LostModel


def render_undo(plan: UndoPlan) -> str:
    """The whole plan of an undo; the same text for the same plan, what is lost for good at its end."""
    sections = [
        _hosts(plan),
        _steps(plan),
        [line for host in plan.hosts for line in _standing(host)],
        list(_left(plan)),
        list(_stakes(plan)),
        [undo_summary(plan)],
    ]
    lines = [line for section in sections if section for line in (*section, "")]
    return "".join(f"{printable(line)}\n" for line in lines[:-1])


def undo_summary(plan: UndoPlan) -> str:
    """One line: on how many hosts something is removed, and which are left out."""
    tail = "".join(
        f" {verdict.value.capitalize()}: {', '.join(host.name for host in hosts)}."
        for verdict in (Verdict.REFUSED, Verdict.UNKNOWN)
        if (hosts := plan.of(verdict))
    )
    if not plan.undone:
        known = len(plan.of(Verdict.NOTHING))
        else_ = " else" if plan.keep_runs else ""
        return f"Nothing{else_} to undo on {counted(known, 'host')}.{tail}"
    size = megabytes(sum(host.frees for host in plan.undone))
    return f"Undo: {len(plan.undone)} of {counted(len(plan.hosts), 'host')}, {size} to remove.{tail}"


def question(plan: UndoPlan) -> str:
    """What is asked before the first change, naming what is at stake; the answer is the number of hosts."""
    names = ", ".join(host.name for host in plan.undone)
    stakes = [
        *(f"run {run.run_id} ends" for run in plan.ending if run.ends and not plan.keep_runs),
        *(f"the model of run {model.run_id} is lost" for model in plan.lost_models),
    ]
    at_stake = "".join(f"\n{stake[0].upper()}{stake[1:]}." for stake in stakes)
    return f"This removes what tailtrain has on {names}.{at_stake}\nType the number of hosts to do it"


def _hosts(plan: UndoPlan) -> list[str]:
    rows: list[Sequence[object]] = [
        ("Host", "role", "worker", "programs", "data", "runs", "rest", "sum in MB")
    ]
    for host in plan.hosts:
        found = host.belongings
        if host.verdict in (Verdict.UNKNOWN, Verdict.NOTHING):
            rows.append((host.name, host.role, host.verdict.value, "", "", "", "", ""))
            continue
        parts = [host.bytes_of(*PROGRAMS), host.bytes_of(*DATA), host.bytes_of(layout.RUN_DIR)]
        numbers = [*parts, found.bytes - sum(parts), found.bytes]
        unit = found.units.get(layout.WORKER_UNIT)
        rows.append((host.name, host.role, unit.active if unit else "none", *map(_mb, numbers)))
    return table(rows, right=range(3, 8), indent=0)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def _steps(plan: UndoPlan) -> list[str]:
    """What is done; hosts on which the same is done share it."""
    shared: dict[tuple[str, ...], list[str]] = {}
    for host in plan.undone:
        shared.setdefault(host.steps, []).append(host.name)
    lines = []
    for steps, names in shared.items():
        lines += wrapped(f"on {', '.join(names)}")
        lines += [line for step in steps for line in wrapped(step, indent=2)]
    return lines


def _standing(host: UndoHost) -> Iterator[str]:
    """Why a host is left out."""
    if host.verdict is Verdict.UNKNOWN:
        yield f"{host.name}: cannot be reached, what is there is unknown and stays"
    elif host.verdict is Verdict.REFUSED:
        yield f"{host.name}: refused, nothing is touched there"
    else:
        return
    for line in host.obstacle.splitlines():
        yield from wrapped(line, indent=2)
    if host.verdict is Verdict.UNKNOWN and host.role == "departed":
        yield "  once the others are undone nobody knows of it: to undo it later, put it"
        yield "  back into the inventory and name it"


def _left(plan: UndoPlan) -> Iterator[str]:
    """What stays, and what comes of it."""
    if not plan.undone:
        return
    yield "What stays"
    packages: dict[str, list[str]] = {}
    for host in plan.undone:
        if host.belongings.left:
            packages.setdefault(", ".join(host.belongings.left), []).append(host.name)
    for names, hosts in packages.items():
        yield from wrapped(f"packages {names}: others may use them by now (on {', '.join(hosts)})", indent=2)
    yield "  what the workers have written to the system's log"
    for host in plan.undone:
        if host.kept:
            runs = counted(len(host.belongings.runs), "run")
            size = megabytes(host.bytes_of(layout.RUN_DIR))
            yield f"  {host.name}: {runs}, {size}, and the account that owns them"
    again = [host.name for host in plan.undone if host.role != "departed"]
    if again:
        names = ", ".join(again)
        yield from wrapped(
            f"in the inventory, so the next deploy is a first install there: {names}", indent=2
        )


def _stakes(plan: UndoPlan) -> Iterator[str]:
    """What cannot be brought back."""
    lines = [line for run in plan.ending for line in _ending(run, keep=plan.keep_runs)]
    lines += [line for model in plan.lost_models for line in _lost(model)]
    if lines:
        yield "At stake"
        yield from lines


def _ending(run: EndingRun, *, keep: bool) -> Iterable[str]:
    state = "under way" if run.under_way else "unfinished"
    where = f"at round {run.round}" if run.round >= 0 else "before its first round"
    if not run.ends:
        then = "it goes on without, if enough nodes are left"
    elif keep:
        then = "it stops; the next deploy resumes it"
    else:
        then = "it ends there and cannot be resumed"
    return wrapped(f"run {run.run_id}, {state} {where} on {', '.join(run.hosts)}: {then}", indent=2)


def _lost(model: LostModel) -> Iterator[str]:
    yield from wrapped(
        f"the model of run {model.run_id}, {megabytes(model.bytes)} on {', '.join(model.hosts)}, has not been"
        " fetched from here",
        indent=2,
    )
    yield "    to have it: tailtrain fetch FOLDER" if model.fetchable else "    to keep it there: --keep-runs"


class Result(StrEnum):
    """What came of an undo on a host."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """What came of one host, and more about it."""

    name: str
    result: Result
    detail: str


def render_outcomes(plan: UndoPlan, outcomes: Sequence[Outcome]) -> str:
    """A row for each host of the plan, and the proof: on which of them nothing was found at a second look."""
    keeping = {host.name for host in plan.undone if host.kept}
    rows: list[Sequence[object]] = [("Host", "result", "")]
    rows += [(one.name, one.result.value, one.detail) for one in outcomes]
    lines = table(rows, indent=0)
    done = [one.name for one in outcomes if one.result is Result.DONE]
    for names, rest in (
        ([name for name in done if name not in keeping], "nothing of tailtrain's"),
        ([name for name in done if name in keeping], "nothing of tailtrain's but the runs"),
    ):
        if names:
            lines += ["", *wrapped(f"Looked again: {rest} is left on {', '.join(names)}.")]
    return "".join(f"{printable(line)}\n" for line in lines)
