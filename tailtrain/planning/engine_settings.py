"""How the engines work in detail, as group data's `engine` declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tailtrain.planning.settings_errors import unknown, wrong
from tailtrain.spec.problems import Problems

COMPRESSIONS = ("none", "fp16", "8-bit")
CHOSEN = "auto"
"""Where the topology optimizer chooses; `declared_cores` takes the most exact."""

_PORTS = (1024, 65_535)
_WHOLE: dict[str, tuple[int, int]] = {
    "steps_per_round": (1, 1_000_000),
    "all_each": (0, 1_000),
    "checkpoint_rounds": (1, 1_000),
    "microbatches": (1, 65_536),
    "checkpoint_steps": (1, 1_000_000),
    "gossip_port": _PORTS,
    "beacon_port": _PORTS,
}


@dataclass(frozen=True)
class EngineSettings:
    """What the engines are told.

    Attributes:
        deterministic: dataParallel with centralized: two runs give the same weights to the bit. Each node
            trains `steps_per_round` steps (scaled by its share) instead of a time.
        steps_per_round: of the node with the largest share, where deterministic.
        all_each: eneGossip: every how many rounds all average together instead of in pairs; 0 leaves it to
            the optimizer.
        compression: in what form weights travel: `none`, `fp16`, `8-bit`, or `auto`.
        checkpoint_rounds: every how many averagings of all a node writes what was committed to disk.
        microbatches: pipelineParallel: in how many parts a batch passes the stages.
        checkpoint_steps: pipelineParallel and modelParallel: steps between checkpoints.
        allow_wan: lets modelParallel run over long round trips or very unequal nodes.
        gossip_port: eneGossip: where Serf listens on the tailnet address, UDP and TCP.
        beacon_port: pipelineParallel and modelParallel: where a node says that it is alive.
    """

    deterministic: bool = False
    steps_per_round: int = 20
    all_each: int = 0
    compression: str = CHOSEN
    checkpoint_rounds: int = 1
    microbatches: int = 4
    checkpoint_steps: int = 50
    allow_wan: bool = False
    gossip_port: int = 45_003
    beacon_port: int = 45_005


def engine_settings(value: object) -> EngineSettings:
    """Check and read the section.

    Raises:
        DeclarationError: for unknown or wrong values, naming each.
    """
    if not isinstance(value, Mapping):
        raise wrong("engine", value, "a dictionary")
    known: dict[str, Any] = asdict(EngineSettings())
    problems = Problems()
    for name, found in value.items():
        with problems.gathered():
            if name not in known:
                raise unknown(str(name), f"engine.{name}", known, None)
            _check(name, found)
            known[name] = found
    problems.raise_if_any()
    return EngineSettings(**known)


def _check(name: str, found: object) -> None:
    if name in _WHOLE:
        least, most = _WHOLE[name]
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            raise wrong(f"engine.{name}", found, f"a whole number from {least} to {most}")
    elif name == "compression":
        if found not in (CHOSEN, *COMPRESSIONS):
            raise wrong("engine.compression", found, ", ".join((CHOSEN, *COMPRESSIONS)))
    elif not isinstance(found, bool):
        raise wrong(f"engine.{name}", found, "True or False")
