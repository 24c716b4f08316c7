"""How an operation's work on one host is written: a function that raises when it fails.

pyinfra calls it when it executes. An error of ours becomes one line under the host's name; it never becomes
a traceback, and never ends the run of the other hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand

from tailtrain.errors import FleetError, TailtrainError
from tailtrain.fleet import remote
from tailtrain.fleet.results import FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyinfra.api.host import Host
    from pyinfra.api.state import State


def step(work: Callable[[Host], None]) -> FunctionCommand:
    """A command for pyinfra that does `work` on the host it runs for."""

    def call(state: State, host: Host) -> bool:  # noqa: ARG001 - pyinfra passes both, by these names
        try:
            work(host)
        except TailtrainError as error:
            # pyinfra's prefix names the host already.
            text = str(error).removeprefix(f"{host.name}: ")
            host.connector_data[FAILURE] = text
            host.log_styled(text, log_func=logger.error, fg="red")
            return False
        return True

    return FunctionCommand(call, (), {})


def must(
    host: Host, command: str | Sequence[str], *, what: str, stdin: Any = None, timeout: int | None = 60
) -> str:
    """Run a command that has to succeed, and give its standard output.

    Raises:
        FleetError: naming the host, what was tried and the last line that the command said.
    """
    output = remote.run(host, command, stdin=stdin, timeout=timeout)
    if not output.ok:
        said = (output.stderr.strip() or output.stdout.strip()).splitlines()
        raise FleetError(f"could not {what}", host=host.name, found=said[-1] if said else "no output")
    return output.stdout


def require_active(host: Host, unit: str) -> None:
    """Check that a unit runs.

    Raises:
        FleetError: with the end of the unit's log.
    """
    state = remote.run(host, ["systemctl", "is-active", unit]).stdout.strip()
    if state != "active":
        log = remote.journal(host, unit)
        raise FleetError(f"{unit} is {state or 'unknown'}; its log ends:\n{log}", host=host.name)
