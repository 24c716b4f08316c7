"""The gate between phases: pyinfra goes on with whoever is left; training must not.

Before the first operation the deploy lock is taken, so that a deploy with nothing to do never takes it. After
every operation the hosts that failed are looked at: without the primary, or with less than two thirds of the
nodes (all of them where fault tolerance is off), the run stops there and says why.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import click
from pyinfra.api.state import BaseStateCallback

from tailtrain.errors import GateError, LockedError, TailtrainError
from tailtrain.fleet.leaving import Leaving
from tailtrain.fleet.lock import DeployLock, locked
from tailtrain.fleet.refusal import Refused, refused_as_locked
from tailtrain.fleet.results import Results

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from tailtrain.planning.plan import Plan


def require_quorum(plan: Plan, operation: str, failed: AbstractSet[str]) -> None:
    """Check that those who are left can carry the deploy.

    Raises:
        GateError: where the primary or too many nodes are out.
    """
    out = failed | {host.node.hostname for host in plan.hosts if host.unreachable}
    if not out:
        return
    left = len(plan.hosts) - len(out)
    primary = plan.primary.node.hostname
    if primary in out:
        raise GateError(
            f"stopped after '{operation}': nothing can go on without the primary",
            host=primary,
            fix="Its error is shown above; run the same command again to go on from here",
        )
    if left < plan.quorum:
        raise GateError(
            f"stopped after '{operation}'",
            field="quorum",
            found=f"{left} of {len(plan.hosts)} nodes, without {', '.join(sorted(out))}",
            expected=f"at least {plan.quorum}",
            fix="Run the same command again when they are back",
        )


def require_nobody(plan: Plan) -> None:
    """Nobody was deploying when a plan was made, on whichever host: what they did is not in the plan.

    Raises:
        LockedError: naming who was.
    """
    if plan.lock is not None:
        raise locked(plan.primary.node.hostname, asdict(plan.lock))


class Gate(BaseStateCallback):
    """Lets one deploy at a time begin, and stops it when those who are left cannot carry it.

    Args:
        state: pyinfra's, after connecting.
        plan: what is to be done.
        cleaned: fills with the hosts that left the fleet and are done with.
    """

    def __init__(self, state: State, plan: Plan, cleaned: AbstractSet[str]) -> None:
        self._plan = plan
        self.results = Results(plan, cleaned)
        self.leaving = Leaving(self.results)
        primary = state.inventory.get_host(plan.primary.node.hostname)
        # A plan that was made while somebody deployed is of no use once they are done.
        self._lock = DeployLock(primary, plan.id, None if plan.lock else plan.deploys)
        self._lost: LockedError | None = None
        self._begun: set[str] = set()

    def attach(self, state: State) -> None:
        """Listen to pyinfra, and to Ctrl-C, from now on."""
        state.add_callback_handler(self.results)
        state.add_callback_handler(self)
        self.leaving.install()

    def require_lock(self) -> None:
        """Hold the deploy lock, or have it again after the connection was cut.

        Raises:
            LockedError: somebody else is deploying, has deployed since the plan was made, or broke the lock.
            FleetError: the primary could not be asked.
        """
        try:
            left = self._lock.require()
        except LockedError as error:
            self._lost = error
            raise
        if left is not None:
            click.echo(f"    took over the deploy lock of a process that is gone: {left}", err=True)

    def operation_start(self, state: State, op_hash: str) -> None:  # type: ignore[override]
        """Called by pyinfra before an operation runs on any host.

        Raises:
            Refused: the deploy lock cannot be had.
        """
        try:
            if not self._begun:
                require_nobody(self._plan)
            self.require_lock()
        except TailtrainError as error:
            self._refuse(error)
        if not self._begun:
            self.results.begin(state)
        self._begun.add(op_hash)

    def operation_host_start(self, state: State, host: Host, op_hash: str) -> None:  # type: ignore[override]
        """Called by pyinfra before an operation runs on a host.

        Raises:
            SystemExit: pyinfra runs hosts one after the other, or each at its own pace: then no phase begins
                after another, and no gate stands between them.
        """
        del state
        if op_hash in self._begun or host.executing_op_hash is not None:
            return
        click.secho(
            "Error: phases need all hosts side by side; leave out --serial and --no-wait", err=True, fg="red"
        )
        sys.exit(1)

    def operation_end(self, state: State, op_hash: str) -> None:  # type: ignore[override]
        """Called by pyinfra after an operation ran on all its hosts.

        Raises:
            Refused: with the gate's reason; later operations do not run.
        """
        if self._lost is not None:
            self._refuse(self._lost)
        try:
            require_quorum(self._plan, self.results.operation, {host.name for host in state.failed_hosts})
        except GateError as error:
            self._refuse(error)
        if op_hash == state.get_op_order()[-1]:
            self._lock.release()

    def _refuse(self, error: TailtrainError) -> NoReturn:
        self._lock.release()
        if isinstance(error, LockedError):
            raise refused_as_locked(str(error)) from None
        raise Refused(str(error)) from None
