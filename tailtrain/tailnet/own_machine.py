"""The control machine as one of the hosts: its commands run here, without SSH."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gevent.subprocess import PIPE, Popen
from pyinfra.connectors.local import LocalConnector

from tailtrain.tailnet.commands import run_command

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand
    from pyinfra.connectors.util import CommandOutput


class OwnMachine(LocalConnector):
    """pyinfra's local connector, with input and output handled as over SSH."""

    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,  # noqa: FBT001, FBT002  # pyinfra's signature
        print_input: bool = False,  # noqa: FBT001, FBT002  # pyinfra's signature
        **arguments: Any,
    ) -> tuple[bool, CommandOutput]:
        """Run a command here; raises as `TailscaleConnector.run_shell_command`."""
        return run_command(
            self.state,
            self.host,
            command,
            _LocalCommand,
            print_output=print_output,
            print_input=print_input,
            arguments=arguments,
        )


class _LocalCommand:
    """A running process; a terminal is never given, as pyinfra's own local connector does."""

    def __init__(self, command_line: str, _get_pty: bool) -> None:  # noqa: FBT001  # run_command's interface
        # A session of its own, so that all of its processes can be ended.
        self._process = Popen(
            ["/bin/sh", "-c", command_line], stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        self.stdin = self._process.stdin
        self.stdout = self._process.stdout
        self.stderr = self._process.stderr

    def wait(self) -> int:
        return int(self._process.wait())

    def abort(self) -> None:
        if self._process.poll() is None:
            # What runs under sudo cannot be ended by us; it sees the end of its input.
            with suppress(PermissionError, ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(OSError):
            self.stdin.close()

    def close(self) -> None:
        self.abort()
        self.stdout.close()
        self.stderr.close()
