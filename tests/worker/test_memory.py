"""What a worker needs beyond the model and its optimiser: all its processes together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_MB = 400.0
_VECTORS = 5  # weights, gradients, two moments, and the optimiser's scratch space
_MB = 1024.0**2


def _megabytes(session: int) -> float:
    """Anonymous and shared memory of all processes of a session; what several share is counted once."""
    found = 0.0
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or os.getsid(int(process.name)) != session:
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended meanwhile
            continue
        sizes = {name: int(size.split()[0]) for name, _, size in (line.partition(":") for line in lines[1:])}
        found += (sizes["Pss_Anon"] + sizes["Pss_Shmem"]) / 1024
    return found


def test_a_worker_needs_at_most_400_mb_beyond_the_model_and_its_optimiser(
    make_fleet: Callable[..., Any],
) -> None:
    """Trainer, table, averager and libp2p's daemon, through training, averagings and checkpoints."""
    fleet = make_fleet(2, quorum=2)
    for config in fleet.configs:
        config["model"] = {"layers": 4, "width": 128, "heads": 4, "context": 128}
    fleet.start()
    peak = 0.0

    def averaged_three_times() -> bool:
        nonlocal peak
        peak = max(peak, _megabytes(fleet.processes[0].pid))
        return len(fleet.progress(0)) >= 3

    fleet.until(averaged_three_times, 120, "three rounds")
    (weights,) = list((fleet.run_dir(0) / "checkpoints").glob("*/weights.safetensors"))[:1]
    model = _VECTORS * weights.stat().st_size / _MB
    print(f"a worker needs {peak - model:.0f} MB beyond its model")
    assert 100 < peak - model < _MOST_MB
