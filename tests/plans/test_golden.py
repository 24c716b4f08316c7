"""Golden plans: each folder of `cases` holds a situation (`case.py`) and the plan for it (`plan.txt`).

A plan's own id is left out of the text, since it vouches for the templates' every byte. After a change that
is meant to show, write the plans anew and read what changed:

    TAILTRAIN_WRITE_PLANS=1 pytest tests/plans && git diff tests/plans
"""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plans.situations import Situation

CASES = sorted(path.parent for path in Path(__file__).parent.glob("cases/*/case.py"))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_plan_is_as_written_down(case: Path) -> None:
    situation: Situation = runpy.run_path(str(case / "case.py"))["SITUATION"]
    text = re.sub(r"^Plan [0-9a-f]{12}:", "Plan ID:", situation.text())
    golden = case / "plan.txt"
    if os.environ.get("TAILTRAIN_WRITE_PLANS"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
