"""The ports of a node, which have to differ: each service binds its own on the tailnet address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.serf_config import RPC_PORT
from tailtrain.planning.settings_errors import wrong
from tailtrain.spec.problems import Problems

if TYPE_CHECKING:
    from tailtrain.planning.settings import Settings

_TAKEN = {RPC_PORT: "Serf's answers on loopback"}


def require_distinct_ports(settings: Settings) -> None:
    """Check that no two services listen on one port.

    Raises:
        DeclarationError: naming each setting whose port is taken, and by what.
    """
    taken, problems = dict(_TAKEN), Problems()
    for name, port in (
        ("worker_port", settings.worker_port),
        ("chunk_port", settings.chunk_port),
        ("engine.gossip_port", settings.engine.gossip_port),
        ("engine.beacon_port", settings.engine.beacon_port),
    ):
        if port in taken:
            problems.found.append(wrong(name, port, f"a port that is free: it is that of {taken[port]}"))
        taken.setdefault(port, name)
    problems.raise_if_any()
