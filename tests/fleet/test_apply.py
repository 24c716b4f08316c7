"""`tailtrain apply` before and after the deploy itself: what is approved, how it ends, who hears Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tailtrain.commands.apply import exit_code
from tailtrain.errors import FleetError
from tailtrain.fleet.approval import FILE_VARIABLE, PLAN_VARIABLE, is_approved
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.documents.plan import encode
from tests.plans.situations import Situation

if TYPE_CHECKING:
    from pathlib import Path

CHILD = """
import signal, sys, time
from tailtrain.commands.apply import _child
inner = '''
import signal, sys, time
def ended(number, frame):
    print("told", number, flush=True)
    sys.exit({code})
signal.signal(signal.SIGINT, ended)
signal.signal(signal.SIGTERM, ended)
print("ready", flush=True)
time.sleep(60)
'''
code = _child([sys.executable, "-c", inner.format(code=sys.argv[1])], {})
print("ended", code, flush=True)
"""


def test_nobody_was_asked_where_pyinfra_is_run_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLAN_VARIABLE, raising=False)
    assert not is_approved(Situation().plan())


def test_the_plan_that_was_shown_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLAN_VARIABLE, Situation().plan().id)
    assert is_approved(Situation().plan())


def test_another_plan_is_refused_with_what_is_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = Situation().applied().on("judge", manifests=frozenset()).plan()
    file = tmp_path / "plan.json"
    file.write_bytes(encode(document_of(shown)))
    monkeypatch.setenv(PLAN_VARIABLE, shown.id)
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    now = Situation().applied().unreachable("judge", "no answer").plan()
    with pytest.raises(FleetError) as caught:
        is_approved(now)
    said = str(caught.value)
    assert said.startswith(f"plan {shown.id} no longer holds; nothing was done (found plan {now.id})")
    assert "\n  judge: unreachable now, no answer" in said
    assert said.endswith("\nMake a new one: tailtrain plan")


def test_without_its_document_another_plan_is_refused_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PLAN_VARIABLE, "000000000000")
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "gone.json"))
    with pytest.raises(FleetError, match="plan 000000000000 no longer holds"):
        is_approved(Situation().plan())


@pytest.mark.parametrize(
    ("deploy", "after", "code"),
    [
        (0, Situation().applied(), 0),
        (1, Situation().applied(), 1),
        (0, Situation(), 2),
        (1, Situation(), 1),
        (0, Situation().applied().unreachable("judge", "away"), 3),
        (1, Situation().applied().unreachable("judge", "away"), 3),
    ],
)
def test_exit_codes(deploy: int, after: Situation, code: int) -> None:
    assert exit_code(deploy, document_of(after.plan(), diffs=False)) == code


@pytest.mark.parametrize(
    ("number", "child", "code"),
    [(signal.SIGINT, 130, 130), (signal.SIGINT, 0, 130), (signal.SIGTERM, 143, 143)],
)
def test_what_it_is_told_is_told_to_the_deploy_whose_exit_code_counts(
    number: int, child: int, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(child)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(number)
        assert process.stdout.read() == f"told {number}\nended {code}\n"
