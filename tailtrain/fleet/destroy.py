"""`tailtrain destroy`: which hosts, what is there, the plan; and carrying it out.

Not a deploy of pyinfra's: that knows only the inventory, leaves hosts out that it cannot reach, and goes from
operation to operation where each host's removal stands alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gevent.pool import Pool

from tailtrain.errors import DeclarationError, FleetError
from tailtrain.fleet import departed, lock, lock_program, remote, transfer, undo
from tailtrain.fleet.datasets import WORK_DIR
from tailtrain.planning.departed import departed_names
from tailtrain.planning.observed import Unreachable
from tailtrain.planning.receipt import receipts_of
from tailtrain.planning.rendering.undo import Outcome, Result
from tailtrain.planning.undoing import UndoHost, UndoPlan, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_PRIMARY = "primary"


@dataclass
class Undoing:
    """An undo that is planned: the hosts to send it to, and the primary's lock."""

    plan: UndoPlan
    hosts: Mapping[str, Host]
    lock: lock.DeployLock | None

    def carry_out(self) -> list[Outcome]:
        """Remove what is planned from all hosts at once, look again, and say what came of each.

        Raises:
            LockedError: somebody deploys at this moment, or has deployed since the plan was made.
        """
        names = [host.name for host in self.plan.undone]
        if self.lock is not None and names:
            self.lock.require()
        try:
            found = dict(zip(names, Pool(64).map(self._undo, names), strict=True))
        finally:
            if self.lock is not None:
                self.lock.release()
        return [found.get(host.name) or _not_run(host) for host in self.plan.hosts]

    def _undo(self, name: str) -> Outcome:
        host, planned = self.hosts[name], next(host for host in self.plan.undone if host.name == name)
        try:
            undo.clean(host, keep_runs=self.plan.keep_runs)
            trouble = ""
        except FleetError as error:
            trouble = str(error).removeprefix(f"{name}: ")
        after = undo.look(host)
        if isinstance(after, Unreachable):
            return Outcome(name, Result.UNKNOWN, trouble or after.reason)
        rest = UndoHost(name, planned.role, after, keep_runs=self.plan.keep_runs)
        if rest.verdict is not Verdict.NOTHING:
            return Outcome(name, Result.FAILED, trouble or f"still to do: {'; '.join(rest.steps)}")
        return Outcome(name, Result.DONE, f"{planned.frees / 1e6:,.1f} MB removed")


def _not_run(host: UndoHost) -> Outcome:
    """What is said of a host that nothing was done to."""
    if host.verdict is Verdict.UNKNOWN:
        return Outcome(host.name, Result.UNKNOWN, "could not be reached")
    if host.verdict is Verdict.REFUSED:
        return Outcome(host.name, Result.REFUSED, host.obstacle)
    return Outcome(host.name, Result.NOT_RUN, "nothing of tailtrain's was there")


@contextmanager
def undoing(state: State, names: Sequence[str], *, keep_runs: bool = False) -> Iterator[Undoing]:
    """Connect, look, and plan; nothing is changed.

    Args:
        state: pyinfra's state of an inventory, connected to nothing.
        names: hosts of the inventory, or of receipts; none means all of both.
        keep_runs: leave the runs, and the account that owns them.

    Raises:
        DeclarationError: no such host.
        LockedError: somebody is deploying to this fleet.
    """
    wanted = {name.removeprefix("@tailscale/") for name in names}
    roles = {host.name: _PRIMARY if _PRIMARY in host.groups else "compute" for host in state.inventory}
    asked = _asked(wanted, roles)
    reached = departed.reach(h for h in state.inventory if h.name in asked or roles[h.name] == _PRIMARY)
    try:
        yield _planned(state, roles, reached, wanted, keep_runs=keep_runs)
    finally:
        departed.disconnect(reached)


def _asked(wanted: set[str], roles: Mapping[str, str]) -> set[str]:
    """Who is looked at: whoever left is known from the receipts of all that did not, so all of them then."""
    return wanted if wanted and wanted <= roles.keys() else set(roles)


def _planned(
    state: State,
    roles: dict[str, str],
    reached: dict[str, Host | str],
    wanted: set[str],
    *,
    keep_runs: bool,
) -> Undoing:
    """The plan for these hosts and those that left; adds the latter to `reached` and `roles`."""
    primary = next(
        (h for name, h in reached.items() if roles[name] == _PRIMARY and not isinstance(h, str)), None
    )
    deploys = 0 if primary is None else _deploys(primary)
    asked = _asked(wanted, roles)
    answers = departed.look({name: host for name, host in reached.items() if name in asked})
    logins = departed.really_left(departed_names(roles, receipts_of(answers.values())), state.inventory)
    if unknown := sorted(wanted - roles.keys() - logins.keys()):
        raise DeclarationError(
            "neither in the inventory nor in the receipts of the hosts there",
            host=unknown[0],
            expected=f"one of {', '.join([*roles, *logins])}",
        )
    left = departed.connect({n: login for n, login in logins.items() if not wanted or n in wanted}, state)
    reached |= left
    roles |= dict.fromkeys(left, "departed")
    answers |= departed.look(left)
    hosts = tuple(
        UndoHost(name, roles[name], answers[name], keep_runs=keep_runs)
        for name in answers
        if not wanted or name in wanted
    )
    return Undoing(
        UndoPlan(hosts, frozenset(_fetched(Path(state.cwd or Path.cwd()), hosts)), keep_runs),
        {name: host for name, host in reached.items() if not isinstance(host, str)},
        lock.DeployLock(primary, "destroy", deploys) if primary is not None else None,
    )


def _deploys(primary: Host) -> int:
    """The number that the lock will be taken with: whoever deploys from now on raises it.

    Raises:
        LockedError: somebody is deploying at this moment.
    """
    reply = remote.ask(primary, (lock_program,), {"do": "look", "folder": lock_program.FOLDER})
    if reply["holder"] is not None:
        raise lock.locked(primary.name, reply["holder"])
    return int(reply["deploys"])


def _fetched(project: Path, hosts: Iterable[UndoHost]) -> Iterator[str]:
    """The hashes of those models on hosts that this machine has as well."""
    wanted = {
        run.run_id: run.model_sha256 for host in hosts for run in host.belongings.runs if run.model_sha256
    }
    for run_id, sha256 in wanted.items():
        model = project / WORK_DIR / "runs" / run_id / "final" / "model.safetensors"
        if model.is_file() and transfer.described(model).sha256 == sha256:
            yield sha256
