"""The operations that take something away: old runs and chunks, and all of ours on hosts that left.

They come last, and nothing of a data set goes before every host has verified what is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from gevent.lock import RLock
from gevent.pool import Pool
from pyinfra import context
from pyinfra.api import operation

from tailtrain.errors import FleetError
from tailtrain.fleet import folders, probe, session, undo
from tailtrain.fleet.operations import Commands, where_planned, write_receipt
from tailtrain.fleet.steps import step
from tailtrain.planning.observed import Unreachable
from tailtrain.planning.parts import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyinfra.api.host import Host

    from tailtrain.fleet.session import Session
    from tailtrain.planning.plan import DepartedHost

_verifying = RLock()


@operation()
def drain() -> Commands:
    """Stop the workers of hosts that left the inventory, before the others go on without them."""
    yield from _on_departed("drain", lambda host, _: undo.drain(host))


@operation()
def prune() -> Commands:
    """Remove what a host no longer needs: old runs, chunks that others own now, code and environments."""
    yield from where_planned("prune", _prune)


def _prune(host: Host) -> None:
    now = session.current()
    spared = any(removal.data for removal in now.plan.host(host.name).removals) and not _all_verified(now)
    removals = [removal for removal in now.plan.host(host.name).removals if not (removal.data and spared)]
    folders.remove(host, [path for removal in removals for path in removal.paths])


@operation()
def clean() -> Commands:
    """Remove all of ours from hosts that left the inventory."""
    yield from _on_departed("clean", _clean)


def _clean(host: Host, left: DepartedHost) -> None:
    now = session.current()
    if _all_verified(now):
        undo.clean(host)
        now.cleaned.add(left.name)


@operation()
def receipt() -> Commands:
    """Leave on each host what was applied to it."""
    yield from where_planned("receipt", write_receipt)


def _on_departed(key: str, work: Callable[[Host, DepartedHost], None]) -> Commands:
    """Work on the hosts that left, all at once. The primary stands for them: they are in no inventory."""
    plan = session.current().plan
    if session.here() is plan.primary and any(left.does(key) for left in plan.departed):
        yield step(lambda _: _do_on_departed(key, work))


def _do_on_departed(key: str, work: Callable[[Host, DepartedHost], None]) -> None:
    """Work on hosts that left. Training goes on though a worker there may, which no peer listens to.

    Raises:
        FleetError: one could not be cleaned; that stays planned.
    """
    now = session.current()
    failures: list[FleetError] = []

    def do(left: DepartedHost) -> None:
        host = now.departed[left.name]
        if isinstance(host, str):
            return
        try:
            work(host, left)
        except FleetError as error:
            click.echo(f"    {error}", err=True)
            failures.append(error)

    Pool(64).map(do, [left for left in now.plan.departed if left.does(key)])
    if failures and key == "clean":
        raise failures[0]


def _all_verified(now: Session) -> bool:
    """Whether all hosts have every chunk that is theirs, with the right hash; asked and said once."""
    with _verifying:
        if now.verified is None:
            lacking = _lacking(now)
            now.verified = not lacking
            if lacking:
                click.echo(f"    {lacking}; so nothing of the data sets is removed anywhere yet", err=True)
        return now.verified


def _lacking(now: Session) -> str:
    """The first host that has not what is its own, or cannot say so; empty where all have."""
    state = context.ctx_state.get()
    found = probe.probe(
        list(state.inventory), set(state.active_hosts), now.plan.datasets, now.bundle.material
    )
    failed = {host.name for host in state.failed_hosts}
    for plan in now.plan.hosts:
        name, answer = plan.node.hostname, found[plan.node.hostname]
        if name in failed:
            return f"{name} failed"
        if isinstance(answer, Unreachable):
            return f"{name} does not answer"
        if lacking := plan.wanted_chunks - answer.chunks:
            return f"{name} lacks {counted(len(lacking), 'chunk')} of its own"
    return ""
