"""How nodes of the tailnet reach each other: straight, or through the relay."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from lab.processes import wait_for
from lab.progress import in_parallel
from tailtrain.errors import LabError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable

    # Runs a command where a node is: its words as in `Host.run`, options of subprocess.run.
    Run = Callable[..., subprocess.CompletedProcess[str]]
    Way = Literal["direct", "relay"]

_SECONDS = 60


def way(run: Run, address: str) -> Way | None:
    """How one ping through the tailnet gets from a node to an address and back; None: it does not."""
    options: dict[str, Any] = {"check": False}  # it exits with 1 where the way is not direct
    said = run("tailscale", "ping", "-c", "1", "--timeout", "2s", address, **options).stdout
    if "pong from" not in said:
        return None
    return "relay" if "via DERP(" in said else "direct"


def wait_for_relay(pairs: Iterable[tuple[Run, str]]) -> None:
    """Return when each of these nodes reaches its address through the relay: the direct way is missed late.

    Raises:
        LabError: a minute was not enough.
    """
    in_parallel([partial(_wait, run, address) for run, address in pairs])


def _wait(run: Run, address: str) -> None:
    wait_for(
        lambda: True if way(run, address) == "relay" else None,
        seconds=_SECONDS,
        otherwise=lambda: LabError("the tailnet's relay does not come to be used", host=address),
    )
