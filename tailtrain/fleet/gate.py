"""The gate between phases: pyinfra goes on with whoever is left; training must not.

After every operation the hosts that failed are looked at. Without the primary, or with less than two thirds
of the nodes (all of them where fault tolerance is off), the run stops there and says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api.state import BaseStateCallback

from tailtrain.errors import GateError
from tailtrain.fleet.refusal import Refused

if TYPE_CHECKING:
    from pyinfra.api.state import State

    from tailtrain.planning.plan import Plan


class Gate(BaseStateCallback):
    """Stops the deploy when those who are left cannot carry it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def operation_end(self, state: State, op_hash: str) -> None:  # type: ignore[override]
        """Called by pyinfra after an operation ran on all its hosts.

        Raises:
            Refused: with the gate's reason; later operations do not run.
        """
        operation = ", ".join(sorted(state.get_op_meta(op_hash).names))
        try:
            self.check(operation, {host.name for host in state.failed_hosts})
        except GateError as error:
            raise Refused(str(error)) from None

    def check(self, operation: str, failed: set[str]) -> None:
        """Whether the deploy may go on.

        Raises:
            GateError: where the primary or too many nodes are out.
        """
        plan = self.plan
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
