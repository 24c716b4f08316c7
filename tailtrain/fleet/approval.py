"""A deploy that a person approved does what they were shown, or nothing.

`tailtrain apply` shows a plan, asks, and starts the deploy, which makes its own plan. In between the world
may have changed; then the deploy refuses, and says what is otherwise.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tailtrain.errors import FleetError
from tailtrain.planning.compare import compare
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.documents.plan import decode

if TYPE_CHECKING:
    from tailtrain.planning.documents.plan import PlanDocument
    from tailtrain.planning.plan import Plan

PLAN_VARIABLE = "TAILTRAIN_PLAN"
"""The environment variable with the id of the approved plan."""
FILE_VARIABLE = "TAILTRAIN_PLAN_FILE"
"""The environment variable with the path of the approved plan's document."""
APPLYING_VARIABLE = "TAILTRAIN_APPLYING"
"""The environment variable with the process id of the `tailtrain apply` that a deploy belongs to."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_apply() -> None:
    """See to it that a deploy which `tailtrain apply` started ends, as by Ctrl-C, when that is killed.

    Raises:
        FleetError: it has been killed already.
    """
    applying = os.environ.get(APPLYING_VARIABLE)
    if applying is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if str(os.getppid()) != applying:
        raise FleetError("`tailtrain apply` has ended; nothing was done")


def is_approved(plan: Plan) -> bool:
    """Whether a person has seen and approved this very plan; False where nobody was asked.

    Raises:
        FleetError: another plan was approved; with what is otherwise now.
    """
    approved = os.environ.get(PLAN_VARIABLE)
    if approved is None:
        return False
    if approved != plan.id:
        file = os.environ.get(FILE_VARIABLE)
        saved = _read(Path(file)) if file else None
        raise outdated(saved, document_of(plan), approved)
    return True


def outdated(saved: PlanDocument | None, now: PlanDocument, approved: str) -> FleetError:
    """The refusal of a plan that no longer holds, with what is otherwise now as far as that is known."""
    changes = "".join(f"\n  {line}" for line in compare(saved, now)) if saved else ""
    return FleetError(
        f"plan {approved} no longer holds; nothing was done",
        found=f"plan {now.id}",
        fix=f"Since it was made:{changes}\nMake a new one: tailtrain plan" if changes else "Make a new one",
    )


def _read(file: Path) -> PlanDocument | None:
    try:
        return decode(file.read_bytes(), name=str(file))
    except OSError:
        return None
