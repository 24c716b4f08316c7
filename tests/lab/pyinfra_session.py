"""A pyinfra run under remote control: connects to hosts, then runs what it is told, one JSON line at a time.

Started on the lab's control side; the first line it prints says who is connected, and why others are not.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pyinfra_cli  # noqa: F401  # first of all: it has gevent replace the blocking calls
from paramiko import SSHException
from pyinfra.api import Config, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import BaseStateCallback

from tailtrain.tailnet.commands import BinaryStdin
from tailtrain.tailnet.daemon import path_of

errors: dict[str, str] = {}


class Listener(BaseStateCallback):
    @staticmethod
    def host_connect_error(state: State, host: Any, error: Exception) -> None:
        del state
        errors[host.name] = str(error)


def answer(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def run(state: State, *, host: str, command: str, megabytes: int = 0) -> dict[str, Any]:
    stdin = BinaryStdin([bytes(range(256)) * 4096] * megabytes) if megabytes else None
    started = time.monotonic()
    try:
        succeeded, output = state.inventory.get_host(host).run_shell_command(
            StringCommand(command), _stdin=stdin
        )
    except (OSError, SSHException) as error:
        return {"error": str(error) or type(error).__name__, "seconds": time.monotonic() - started}
    return {
        "succeeded": succeeded,
        "stdout": output.stdout,
        "stderr": output.stderr,
        "path": path_of(host, max_age=0),
        "seconds": time.monotonic() - started,
    }


def main(names: list[str], data: dict[str, Any]) -> None:
    state = State(Inventory((names, data)), Config(), check_for_changes=False)
    state.add_callback_handler(Listener())
    started = time.monotonic()
    try:
        connect_all(state)
    except PyinfraError as error:
        errors.setdefault("", str(error))
    answer(
        {
            "connected": sorted(host.name for host in state.activated_hosts),
            "errors": errors,
            "seconds": time.monotonic() - started,
        }
    )
    for line in sys.stdin:
        answer(run(state, **json.loads(line)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]))
