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
from tailtrain.fleet import probe, session, undo
from tailtrain.fleet.operations import Commands, where_planned, write_receipt
from tailtrain.fleet.steps import must, step
from tailtrain.planning.observed import Unreachable
from tailtrain.tailnet.commands import BinaryStdin

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
    _require_all_verified(now)
    paths = [path for removal in now.plan.host(host.name).removals for path in removal.paths]
    names = b"\0".join(path.encode() for path in paths)
    remove = ["xargs", "--null", "rm", "-rf", "--"]
    must(host, remove, stdin=BinaryStdin([names]), what="remove what is no longer needed", timeout=900)


@operation()
def clean() -> Commands:
    """Remove all of ours from hosts that left the inventory."""
    yield from _on_departed("clean", _clean)


def _clean(host: Host, left: DepartedHost) -> None:
    now = session.current()
    _require_all_verified(now)
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
    """What fails there is said, and stays planned; the fleet that is left does not stop for it."""
    now = session.current()

    def do(left: DepartedHost) -> None:
        host = now.departed[left.name]
        if isinstance(host, str):
            return
        try:
            work(host, left)
        except FleetError as error:
            click.echo(f"    {error}", err=True)

    Pool(64).map(do, [left for left in now.plan.departed if left.does(key)])


def _require_all_verified(now: Session) -> None:
    """Ask all hosts, once, whether they have every chunk that is theirs, with the right hash.

    Raises:
        FleetError: naming a host that does not, or does not answer.
    """
    with _verifying:
        if now.verified:
            return
        state = context.ctx_state.get()
        found = probe.probe(
            list(state.inventory), set(state.active_hosts), now.plan.datasets, now.bundle.material
        )
        for plan in now.plan.hosts:
            answer = found[plan.node.hostname]
            if isinstance(answer, Unreachable):
                raise FleetError(
                    "nothing is removed: it cannot say whether it has what is its own",
                    host=answer.node,
                    found=answer.reason,
                    fix="Run the same command again when it is back",
                )
            if lacking := plan.wanted_chunks - answer.chunks:
                raise FleetError(
                    "nothing is removed: it lacks chunks that it owns",
                    host=answer.node,
                    found=f"{len(lacking)} of {len(plan.wanted_chunks)} missing or damaged",
                    fix="Run the same command again",
                )
        now.verified = True
