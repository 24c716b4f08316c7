"""Running commands and small Python programs on a pyinfra host, with that host's own login and sudo."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paramiko import SSHException
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.command import StringCommand

from tailtrain.data import send
from tailtrain.errors import FleetError
from tailtrain.tailnet.commands import BinaryStdin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from pyinfra.api.host import Host


@dataclass(frozen=True)
class Output:
    """What a command on a host gave."""

    ok: bool
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str | None:
        """The last line on standard error, None where there is none."""
        lines = self.stderr.strip().splitlines()
        return lines[-1] if lines else None


def run(host: Host, command: str | Sequence[str], *, stdin: Any = None, timeout: int | None = 60) -> Output:
    """Run a command on a host as its operations would be run (sudo and the like from the host's data).

    Args:
        host: a connected host.
        command: a word list, quoted here, or a shell line that is already quoted.
        stdin: text, or a `BinaryStdin`.
        timeout: seconds, None for no limit.

    Raises:
        FleetError: naming the host, where the connection broke or the time was up.
    """
    line = command if isinstance(command, str) else shlex.join(command)
    found, _ = pop_global_arguments(host.state, host, {})
    arguments: dict[str, Any] = {key: found[key] for key in CONNECTOR_ARGUMENT_KEYS if key in found}  # type: ignore[literal-required]
    arguments |= {"_timeout": timeout, "_stdin": stdin}
    try:
        ok, output = host.run_shell_command(
            StringCommand(line), print_output=False, print_input=False, **arguments
        )
    except TimeoutError:
        raise FleetError(f"no answer within {timeout} s", host=host.name, found=line[:60]) from None
    except (OSError, SSHException, EOFError) as error:
        raise FleetError(f"the connection broke: {error}", host=host.name) from None
    return Output(ok, output.stdout, output.stderr)


@dataclass(frozen=True)
class Question:
    """What `ask` asks, made once for many hosts.

    Attributes:
        name: of the module that answers.
        content: see `tailtrain.data.send.question`.
    """

    name: str
    content: bytes


def ask(host: Host, modules: Sequence[ModuleType], request: object, *, timeout: int = 60) -> Any:
    """Run modules of standard-library Python on a host, and give the reply of the last one.

    The last module's `main` reads the request from its standard input, as one line of JSON, and prints its
    reply as the last line, so that whatever a login shell prints does no harm.

    Raises:
        FleetError: where there is no Python, or no reply.
    """
    return put(host, Question(modules[-1].__name__, send.question(modules, request)), timeout=timeout)


def put(host: Host, question: Question, *, timeout: int = 60) -> Any:
    """Put a question to a host, and give its reply.

    Raises:
        FleetError: where there is no Python, or no reply.
    """
    output = run(host, send.ask_command(), stdin=BinaryStdin([question.content]), timeout=timeout)
    try:
        return send.answer(output.stdout)
    except ValueError:
        raise FleetError(
            "gave no reply",
            host=host.name,
            field=question.name,
            found=output.complaint or "no output",
            fix="Install python3 there: apt-get install python3" if "not found" in output.stderr else None,
        ) from None


def journal(host: Host, unit: str, lines: int = 15) -> str:
    """The last lines of a unit's log, empty where the host does not answer."""
    try:
        return run(host, ["journalctl", "-u", unit, "-n", str(lines), "--no-pager", "-o", "cat"]).stdout
    except FleetError:
        return ""
