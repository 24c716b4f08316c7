"""`tailtrain apply`: show the plan, ask, do it, and look again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from tailtrain.commands.plan import has_unknown
from tailtrain.commands.shared import cooperate, inventory_option, pyinfra_command
from tailtrain.errors import DeclarationError
from tailtrain.exit_codes import (
    EXIT_CHANGES,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_NO_CHANGES,
    EXIT_UNKNOWN_HOSTS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.documents.plan import PlanDocument
    from tailtrain.planning.plan import Plan


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@inventory_option
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@click.option("--diff", is_flag=True, help="Also show what changes in each file.")
@click.pass_context
def apply(ctx: click.Context, file: Path | None, inventory: Path, *, yes: bool, diff: bool) -> None:
    """Show what a deploy would do, ask, do it, and look again.

    FILE is a plan that `tailtrain plan --out FILE` saved: it is refused where anything has changed since.

    Exit code 0: done, or no changes, 1: error, 2: done, and there is still something to do, 3: done, and some
    hosts could not be asked, 4: somebody else is deploying, 130: Ctrl-C.
    """
    cooperate()
    from tailtrain.fleet.approval import outdated
    from tailtrain.planning.documents.of_plan import document_of
    from tailtrain.planning.rendering.plan import render_plan, summary
    from tailtrain.planning.rendering.stakes import stakes

    saved = _saved(file) if file else None
    command = pyinfra_command(inventory, "deploys/train.py")
    plan = _plan(inventory)
    document = document_of(plan)
    click.echo(render_plan(document, diff=diff), nl=False)
    if not document.changes:
        ctx.exit(EXIT_UNKNOWN_HOSTS if has_unknown(document) else EXIT_NO_CHANGES)
    if saved and saved.id != document.id:
        raise outdated(saved, document, saved.id)
    _require_ready(plan)
    _confirm(stakes(document), ask=not yes)
    code = _deploy(command, document)
    if code not in (EXIT_NO_CHANGES, EXIT_ERROR):
        ctx.exit(code)
    after = document_of(_plan(inventory), diffs=False)
    click.echo(f"\n{summary(after)}")
    ctx.exit(exit_code(code, after))


def exit_code(deploy: int, after: PlanDocument) -> int:
    """How `apply` ends: by the deploy's own code, and by what a plan made after it says.

    pyinfra gives 1 as well where a host could not be reached and all was done on the others.
    """
    if after.changes:
        return EXIT_CHANGES if deploy == EXIT_NO_CHANGES else EXIT_ERROR
    return EXIT_UNKNOWN_HOSTS if has_unknown(after) else deploy


def _saved(file: Path) -> PlanDocument:
    from tailtrain.planning.documents.plan import decode

    try:
        content = file.read_bytes()
    except OSError as error:
        raise DeclarationError(
            "the saved plan cannot be read",
            field=str(file),
            found=error.strerror,
            fix="Make one: tailtrain plan --out FILE",
        ) from None
    return decode(content, name=str(file))


def _plan(inventory: Path) -> Plan:
    from tailtrain.fleet import connect, session

    with connect.connected(inventory, planning=True) as state:
        return session.begin(state).plan


def _require_ready(plan: Plan) -> None:
    """Check what a deploy would be refused for, before anybody is asked.

    Raises:
        LockedError: somebody else is deploying.
        GateError: the primary or too many hosts are away.
    """
    from tailtrain.fleet.gate import require_nobody, require_quorum

    require_nobody(plan)
    require_quorum(plan, "connecting", set())


def _confirm(lines: Sequence[str], *, ask: bool) -> None:
    """Name what is at stake, and have a person say yes to it.

    Raises:
        DeclarationError: there is nobody to ask.
        Exit: they did not say yes; nothing was done.
    """
    from tailtrain.planning.rendering.text import wrapped

    click.echo("\nThis will")
    for line in lines:
        for part in wrapped(line, indent=2):
            click.echo(part)
    if not ask:
        return
    if not sys.stdin.isatty():
        raise DeclarationError(
            "there is no terminal to ask on, so nothing was done",
            fix="To do this without being asked: tailtrain apply --yes",
        )
    answer = click.prompt("Type yes to do this", default="", show_default=False)
    if answer.strip() != "yes":
        click.echo("Nothing was done.")
        raise click.exceptions.Exit(EXIT_ERROR)


def _deploy(command: Sequence[str], document: PlanDocument) -> int:
    """Run pyinfra in this terminal; its exit code. It refuses where its plan is not the one shown."""
    from tailtrain.fleet.approval import APPLYING_VARIABLE, FILE_VARIABLE, PLAN_VARIABLE
    from tailtrain.planning.documents.plan import encode

    with TemporaryDirectory(prefix="tailtrain-") as folder:
        file = Path(folder) / "plan.json"
        file.write_bytes(encode(document))
        sys.stdout.flush()
        ours = {
            PLAN_VARIABLE: document.id,
            FILE_VARIABLE: str(file),
            APPLYING_VARIABLE: str(os.getpid()),
        }
        return _child(command, {**os.environ, **ours})


def _child(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end; what this process is told to do meanwhile is the child's to decide."""
    told: list[int] = []
    with subprocess.Popen(command, env=environment) as child:

        def forward(number: int, frame: Any) -> None:
            del frame
            told.append(number)
            if child.poll() is None:
                child.send_signal(number)

        before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if code < 0:
        return 128 - code
    # pyinfra itself exits 0 where Ctrl-C came while it still connected.
    return EXIT_INTERRUPTED if signal.SIGINT in told and code == EXIT_NO_CHANGES else code
