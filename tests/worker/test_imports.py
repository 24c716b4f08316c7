"""What a worker does not load, and that it is there all the same."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
import tailtrain.worker.peers.swarm
assert "hivemind.averaging.load_balancing" in sys.modules
assert "scipy.optimize._linprog" not in sys.modules
import scipy.optimize
assert scipy.optimize.linprog([1.0], bounds=[(2.0, 3.0)]).x == 2.0
assert "scipy.optimize._linprog" in sys.modules
"""


def test_a_worker_loads_no_solver_until_somebody_asks_for_one() -> None:
    """One is imported by hivemind, for a division of work that is not asked of it."""
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=120)
