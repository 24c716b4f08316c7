"""A plan for a thousand hosts: quick enough, small enough, nobody left out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = 1000


def test_a_plan_for_a_thousand_hosts_names_them_all_within_seconds_and_bounded_memory(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.bench.large_fleet", str(tmp_path / "fleet"), "--hosts", str(HOSTS)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=PROJECT)
    found = json.loads(done.stdout)
    said = (tmp_path / "fleet" / "plan.txt").read_text()
    assert found["exit_code"] == 2, (tmp_path / "fleet" / "errors.txt").read_text()[-2000:]
    assert {int(number) for number in re.findall(r"\bnode(\d{4})\b", said)} == set(range(HOSTS))
    # 10 s on a quiet machine, which `make bench` holds it to; here others may be running.
    assert found["processor_seconds"] < 20
    assert found["bytes"] < 400e6
