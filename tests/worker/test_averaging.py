"""The mean itself: weighted by tokens, equal to the bit on all nodes, and all or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.worker.average_once import vector_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def average(make_fleet: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    processes: list[subprocess.Popen[bytes]] = []

    def run(fleet: Any, tokens: list[int], size: int) -> tuple[list[Path], list[subprocess.Popen[bytes]]]:
        outs = [fleet.root / f"mean{index}" for index in range(fleet.size)]
        for index, count in enumerate(tokens):
            arguments = [str(fleet.write_config(index)), str(count), str(size), str(outs[index])]
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(Path(__file__).with_name("average_once.py")), *arguments],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "HIVEMIND_LOGLEVEL": "CRITICAL"},
                    start_new_session=True,
                )
            )
        return outs, processes

    yield run
    for process in processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.wait()


def _weighted_mean(tokens: list[int], size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    vectors = [vector_of(f"n{index}", size).numpy().astype(np.float64) for index in range(len(tokens))]
    return np.average(vectors, axis=0, weights=tokens)


@pytest.mark.parametrize("protocol", ["decentralized", "centralized"])
def test_the_mean_is_weighted_by_tokens_and_the_same_to_the_bit(
    make_fleet: Callable[..., Any], average: Callable[..., Any], protocol: str
) -> None:
    tokens, size = [100, 3_000, 70_001], 300_000  # several parts, reduced by different nodes
    fleet = make_fleet(3, protocol=protocol, quorum=3, averaging_timeout_seconds=30.0)
    outs, processes = average(fleet, tokens, size)
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    contents = [out.read_bytes() for out in outs]
    assert contents[0] == contents[1] == contents[2]
    np.testing.assert_allclose(
        np.frombuffer(contents[0], np.float32), _weighted_mean(tokens, size), atol=2e-6
    )


def test_a_member_killed_while_averaging_is_in_the_mean_entirely_or_not_at_all(
    make_fleet: Callable[..., Any], average: Callable[..., Any]
) -> None:
    tokens, size = [1_000, 2_000, 4_000], 20_000_000  # large enough to be killed in between
    fleet = make_fleet(3, quorum=2, averaging_timeout_seconds=60.0)
    outs, processes = average(fleet, tokens, size)
    begun = Path(f"{outs[2]}.begun")
    while not begun.exists():
        time.sleep(0.02)
    time.sleep(0.8)
    os.killpg(processes[2].pid, signal.SIGKILL)
    # Both notice at once, and average anew: nobody waits out a time-out.
    assert [process.wait(30) for process in processes[:2]] == [0, 0]
    groups = [Path(f"{out}.group").read_text().split() for out in outs[:2]]
    assert groups[0] == groups[1]
    members = [int(node[1:]) for node in groups[0]]
    vectors = [vector_of(f"n{index}", size).numpy().astype(np.float64) for index in members]
    expected = np.average(vectors, axis=0, weights=[tokens[index] for index in members])
    for out in outs[:2]:
        np.testing.assert_allclose(np.fromfile(out, np.float32), expected, atol=2e-6)
