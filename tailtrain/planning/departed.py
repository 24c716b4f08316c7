"""Hosts that were taken out of the inventory, and still have something of this fleet's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.planning.parts import Action, Phase, megabytes
from tailtrain.planning.plan import DepartedHost

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tailtrain.planning.observed import LockHolder
    from tailtrain.planning.receipt import Login, Receipt


# A receipt may have been edited by anybody on its host.
_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True)
class DepartedFound:
    """What was found of a host that left.

    `gone` says that the tailnet no longer knows it, so that nothing can be done there ever; `unreachable` why
    it could not be asked. Where it could: whether its worker runs or would at the next boot, the run that it
    is on, how many bytes of ours it has (None: nothing of ours), and who deploys with it as primary.
    """

    name: str
    login: Login
    gone: bool = False
    unreachable: str | None = None
    working: bool = False
    run: str = ""
    bytes: int | None = None
    lock: LockHolder | None = None


def departed_names(declared: Collection[str], receipts: Iterable[Receipt]) -> dict[str, Login]:
    """Hosts that receipts name and the inventory does not, with logins; of several the newest knows best."""
    named: dict[str, Login] = {}
    for receipt in sorted(receipts, key=lambda receipt: receipt.at):
        named.update(receipt.fleet)
    return {
        name: login
        for name, login in sorted(named.items())
        if name not in declared and _HOST_NAME.fullmatch(name)
    }


def departed_plan(found: DepartedFound, *, everyone: bool) -> DepartedHost:
    """What is done to a host that left: its worker stops before the others go on; then all of ours goes.

    That waits until `everyone` who is declared answers: what it has may be what one of them still lacks.
    """
    actions = []
    if found.working:
        why = f"it left the fleet; run {found.run} goes on without it" if found.run else "it left the fleet"
        actions.append(Action(Phase.TRAIN, "drain", "stop the worker, and do not start it again", why))
    if found.bytes is not None and everyone:
        what = f"remove the worker with its environment, data and runs, {megabytes(found.bytes)}"
        why = "it left the fleet; after all others have verified what is theirs"
        actions.append(Action(Phase.CLEAN, "clean", what, why))
    return DepartedHost(
        name=found.name,
        login=found.login,
        gone=found.gone,
        unreachable=found.unreachable,
        run=found.run,
        frees=found.bytes or 0,
        actions=tuple(actions),
    )
