"""The command line: which command is where. A command's module is imported when it is asked for."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import click

from tailtrain import __version__
from tailtrain.errors import LockedError, TailtrainError
from tailtrain.exit_codes import EXIT_ERROR, EXIT_LOCKED

COMMANDS = {
    "init": "tailtrain.commands.init:init",
    "devices": "tailtrain.commands.devices:devices",
    "add": "tailtrain.commands.add:add",
    "invite": "tailtrain.commands.invite:invite",
    "policy": "tailtrain.commands.policy:policy",
    "plan": "tailtrain.commands.plan:plan",
    "apply": "tailtrain.commands.apply:apply",
    "unlock": "tailtrain.commands.unlock:unlock",
    "status": "tailtrain.commands.look:status",
    "logs": "tailtrain.commands.look:logs",
    "report": "tailtrain.commands.look:report",
    "fetch": "tailtrain.commands.look:fetch",
    "destroy": "tailtrain.commands.destroy:destroy",
    "stop": "tailtrain.commands.run:stop",
    "resume": "tailtrain.commands.run:resume",
    "config": "tailtrain.commands.config:config",
    "prune": "tailtrain.commands.prune:prune",
    "dataset": "tailtrain.data.cli:dataset_group",
    "lab": "lab.cli:lab_group",
}

# An exit code of 2 says that a plan has changes: a misspelt option must not say the same.
click.UsageError.exit_code = EXIT_ERROR


class _Commands(click.Group):
    """Commands by name, some of them groups of other packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(name for name, where in COMMANDS.items() if find_spec(where.partition(".")[0]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "lab":
                raise
            raise click.ClickException("The lab runs from a checkout of tailtrain: go there first.") from None
        command: click.Command = found
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TailtrainError as error:
            from tailtrain.planning.secrets import masked  # noqa: PLC0415 - only errors need it

            click.secho(f"Error: {masked(str(error), prose=True)}", err=True, fg="red")
            ctx.exit(EXIT_LOCKED if isinstance(error, LockedError) else EXIT_ERROR)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Train a model on all the machines you own, over your Tailscale network."""
