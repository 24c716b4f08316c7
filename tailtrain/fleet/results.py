"""What became of each host: recorded while pyinfra works, shown once when the deploy ends."""

from __future__ import annotations

import atexit
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click
from pyinfra.api.state import BaseStateCallback

from tailtrain.planning.rendering.text import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from tailtrain.planning.plan import Plan


FAILURE = "failure"
"""Where a host's `connector_data` keeps what the operation that failed on it said."""


@dataclass(frozen=True)
class HostResult:
    """What became of a host: done, failed, not run, unknown or no change; and why, or where it stopped."""

    name: str
    result: str
    detail: str


def results_of(
    plan: Plan,
    *,
    failures: Mapping[str, str],
    stopped: Mapping[str, str],
    left_out: AbstractSet[str],
    cleaned: AbstractSet[str],
) -> list[HostResult]:
    """One result for every host of a plan, those that left the fleet included.

    Args:
        plan: what was to be done.
        failures: what failed on a host, by its name.
        stopped: where a host that is not done stopped, by its name.
        left_out: hosts that the person left out of this deploy.
        cleaned: hosts that left the fleet, and are done with.
    """
    found = []
    for host in plan.hosts:
        name = host.node.hostname
        if name in failures:
            result = HostResult(name, "failed", failures[name])
        elif name in left_out:
            result = HostResult(name, "not run", "left out by --limit or --exclude")
        elif host.unreachable:
            result = HostResult(name, "unknown", host.unreachable.partition("\n")[0])
        elif not host.actions:
            result = HostResult(name, "no change", "")
        elif name in stopped:
            result = HostResult(name, "not run", stopped[name])
        else:
            result = HostResult(name, "done", host.verdict)
        found.append(result)
    for left in plan.departed:
        if left.unreachable:
            found.append(HostResult(left.name, "unknown", left.unreachable.partition("\n")[0]))
        elif left.actions:
            done = left.name in cleaned
            what = "cleaned: it left the fleet" if done else "it left the fleet, and is not cleaned yet"
            found.append(HostResult(left.name, "done" if done else "not run", what))
    return found


def next_step(results: Sequence[HostResult], *, judged: bool) -> str:
    """What to type after these results. `judged` says that the run is finished and its report written."""
    failed = [result.name for result in results if result.result == "failed"]
    if failed:
        return f"tailtrain logs {failed[0]}; once the cause is gone: tailtrain apply"
    if any(result.result in ("training", "not run", "unknown") for result in results):
        return "tailtrain apply, which goes on from here"
    return "tailtrain report, tailtrain fetch FOLDER" if judged else "tailtrain status"


def render_results(results: Sequence[HostResult], following: str) -> str:
    """The results as text of 80 columns, as far as names allow."""
    widths = [max(len(getattr(result, field)) for result in results) for field in ("name", "result")]
    lines = ["Results"]
    for result in results:
        start = f"  {result.name:<{widths[0]}}  {result.result:<{widths[1]}}  "
        indent = " " * min(len(start), WIDTH // 2)
        detail = "".join(sign if sign.isprintable() else " " for sign in result.detail)
        lines += textwrap.wrap(start + detail, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join([*lines, f"Next: {following}", ""])


class Results(BaseStateCallback):
    """Listens to pyinfra, and knows what became of each host at any moment."""

    def __init__(self, plan: Plan, cleaned: AbstractSet[str]) -> None:
        self._plan, self._cleaned = plan, cleaned
        self._state: State | None = None
        self._done: set[tuple[str, str]] = set()
        self._failed: dict[str, str] = {}
        self._begun: set[str] = set()
        self._operation = ""

    @property
    def operation(self) -> str:
        """The operation that runs, or ran last; empty before the first."""
        return self._operation

    def begin(self, state: State) -> None:
        """From now on there is something to tell when the process ends. pyinfra has no hook for that."""
        self._state = state
        atexit.register(self.show)

    def operation_start(self, state: State, op_hash: str) -> None:  # type: ignore[override]
        """Called by pyinfra before an operation runs on any host."""
        self._begun.add(op_hash)
        self._operation = _name(state, op_hash)

    def operation_host_success(  # type: ignore[override]
        self,
        state: State,
        host: Host,
        op_hash: str,
        retry_count: int = 0,
    ) -> None:
        """Called by pyinfra when an operation is done on a host."""
        del state, retry_count
        self._done.add((host.name, op_hash))

    def operation_host_error(  # type: ignore[override]
        self,
        state: State,
        host: Host,
        op_hash: str,
        retry_count: int = 0,
        max_retries: int = 0,
    ) -> None:
        """Called by pyinfra when an operation failed on a host."""
        del state, retry_count, max_retries
        self._failed.setdefault(host.name, op_hash)

    def show(self, *, training: bool = False) -> None:
        """Print the table to standard error, once, if anything was begun.

        Args:
            training: the fleet goes on training by itself, where a host has not failed.
        """
        state, self._state = self._state, None
        if state is not None:
            atexit.unregister(self.show)
            results = self.found(state)
            if training:
                results = [_going_on(result) for result in results]
            judged = self._plan.primary.does("judge") and all(
                result.result in ("done", "no change") for result in results
            )
            click.echo(f"\n{render_results(results, next_step(results, judged=judged))}", err=True, nl=False)

    def found(self, state: State) -> list[HostResult]:
        """What became of each host so far."""
        hosts = {host.name: host for host in state.inventory}
        left_out = {name for name, host in hosts.items() if not state.is_host_in_limit(host)}
        order, stopped = state.get_op_order(), {}
        for name, host in hosts.items():
            missed = (op for op in order if op in state.ops[host] and (name, op) not in self._done)
            if first := next(missed, None):
                where = "in" if first in self._begun else "before"
                stopped[name] = f"stopped {where} '{_name(state, first)}'"
        failures = {name: _failure(state, hosts[name], op) for name, op in self._failed.items()}
        for host in state.failed_hosts:
            if host in state.activated_hosts:
                failures.setdefault(host.name, "its error is shown above")
        return results_of(
            self._plan, failures=failures, stopped=stopped, left_out=left_out, cleaned=self._cleaned
        )


def _going_on(result: HostResult) -> HostResult:
    """What a host that is not done does, where only the deploy ended and not the training."""
    if result.result != "not run":
        return result
    detail = "goes on without this window; the phases after it are still to do"
    return replace(result, result="training", detail=detail)


def _name(state: State, op_hash: str) -> str:
    """An operation's name, without the file that pyinfra puts before it."""
    return ", ".join(sorted(name.rpartition(" | ")[2] for name in state.get_op_meta(op_hash).names))


def _failure(state: State, host: Host, op_hash: str) -> str:
    """Which operation failed, and the first and last line of what it said."""
    text = host.connector_data.get(FAILURE)
    if not text:
        meta = state.get_op_data_for_host(host, op_hash).operation_meta
        output = meta.stderr_lines or meta.stdout_lines if meta.is_complete() else []
        text = output[-1] if output else "its error is shown above"
    return f"'{_name(state, op_hash)}': {shortened(text.splitlines())}"


def shortened(lines: Iterable[str]) -> str:
    """The first and the last line that are not empty."""
    told = [line.strip() for line in lines if line.strip()]
    return " ... ".join(told[:1] + told[1:][-1:])
