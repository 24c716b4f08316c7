"""What a fork gives back, and that the worker keeps it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, os, torch
from tailtrain.worker.peers.forks import forget_in_forks, keep_still
def anonymous():
    lines = open("/proc/self/status").readlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) // 1024
torch.set_num_threads(1)
plain, seen = torch.ones(25_000_000), torch.ones(25_000_000)  # 95 MB each
view = plain[:5]
seen.numpy()
before = anonymous()
forget_in_forks([plain, seen])
keep_still()
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, str(anonymous()).encode())
    os._exit(0)
os.wait()
print(json.dumps([before, int(os.read(reading, 99)), [float(v.sum()) for v in (plain, seen, view)]]))
"""


def test_a_fork_gives_back_the_vectors_and_the_worker_keeps_them() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    before, after, whole = json.loads(done.stdout)
    assert before - after > 180
    assert whole == [25_000_000, 25_000_000, 5]
