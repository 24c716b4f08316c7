"""Helper processes that import pyinfra's command line, which changes the process that does so."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def helper(module: str) -> Iterator[Callable[..., dict[str, Any]]]:
    """A module of these tests as a process that answers requests, a line of JSON each."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", f"tests.fleet.{module}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
    ) as process:

        def ask(**request: Any) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                assert process.stderr is not None
                pytest.fail(process.stderr.read())
            found: dict[str, Any] = json.loads(line)
            return found

        yield ask
        process.kill()


@pytest.fixture(scope="session")
def ask_declared() -> Iterator[Callable[..., dict[str, Any]]]:
    """Ask what the inventory of a folder declares."""
    with helper("declaring") as ask:
        yield ask


@pytest.fixture(scope="session")
def ask_command() -> Iterator[Callable[..., dict[str, Any]]]:
    """Run a command of tailtrain in a folder."""
    with helper("commanding") as ask:
        yield ask
