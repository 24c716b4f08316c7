"""Deterministic runs: two of them end with the same weights to the bit, however fast the nodes were."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = (12, 8, 4)


def _digests(fleet: Any, *, slowed: int | None = None) -> list[str]:
    """The weights after each round of a run."""
    for config, steps in zip(fleet.configs, STEPS, strict=True):
        config["training"]["steps_per_round"] = steps
    fleet.start()
    while slowed is not None and fleet.processes[0].poll() is None:
        os.kill(fleet.processes[slowed].pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(fleet.processes[slowed].pid, signal.SIGCONT)
        time.sleep(0.3)
    assert fleet.wait(150) == [0, 0, 0]
    lines = [fleet.progress(index) for index in range(3)]
    assert lines[0][-1]["weights_sha256"] == lines[1][-1]["weights_sha256"] == lines[2][-1]["weights_sha256"]
    tokens = {member["node"]: member["tokens"] for line in lines[0] for member in line["group"]}
    assert tokens == {f"n{index}": steps * 4 * 32 for index, steps in enumerate(STEPS)}
    return [line["weights_sha256"] for line in lines[0]]


def test_two_runs_end_with_the_same_weights_though_one_node_is_slowed(make_fleet: Callable[..., Any]) -> None:
    rounds = 3
    target = rounds * sum(STEPS) * 4 * 32
    made = [
        make_fleet(3, protocol="centralized", quorum=3, target_tokens=target, round_seconds=1.0)
        for _ in range(2)
    ]
    first = _digests(made[0])
    assert len(first) == rounds
    assert _digests(made[1], slowed=1) == first
