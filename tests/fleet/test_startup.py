"""What a deploy that finds nothing to do imports: every tenth of a second counts there."""

from __future__ import annotations

import subprocess
import sys


def test_planning_a_deploy_imports_no_library_that_only_work_needs() -> None:
    program = (
        "import sys, pyinfra_cli, tailtrain.fleet.operations, tailtrain.fleet.session;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    # pyinfra's own imports warn; what is asked here is which modules there are.
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "tailtrain" in done.stdout.split()
    unwanted = {"pyarrow", "numpy", "torch", "tailscale"} & set(done.stdout.split())
    assert not unwanted
