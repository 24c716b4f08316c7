"""The `lab` commands: up, down, status, exec, install; and `lab fault`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from lab import state
from lab.environment import worker_venv as build_worker_venv
from lab.faults import fault_group
from lab.lab import Lab
from lab.plain_errors import plain_errors
from lab.progress import Progress
from lab.settings import Settings
from lab.status import Report, report
from lab.system import install as install_packages
from lab.system import require_root, to_install

_NOT_WELL = 3


@click.group("lab", help="Six real hosts and a real tailnet on this machine.")
@click.option(
    "--name", metavar="NAME", help="Which lab, if there are several. [default: $TAILTRAIN_LAB or lab]"
)
@click.pass_context
@plain_errors
def lab_group(context: click.Context, name: str | None) -> None:
    """Choose the lab for the commands below."""
    context.obj = Settings.from_environment(name)


lab_group.add_command(fault_group)


@lab_group.command("up")
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("inventory.py"),
    show_default=True,
    help="The hosts to boot.",
)
@click.option("--fresh", is_flag=True, help="Take a running lab down first.")
@click.option("--bare", multiple=True, metavar="HOST", help="A host without the worker environment.")
@click.option(
    "--wheels",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with wheels that no index has. [default: $TAILTRAIN_WHEELS or a folder named wheels]",
)
@click.pass_obj
@plain_errors
def up(
    settings: Settings, inventory: Path, bare: tuple[str, ...], wheels: Path | None, *, fresh: bool
) -> None:
    """Boot the inventory's hosts on a private tailnet; repair what is broken, change nothing else."""
    began = time.monotonic()
    lab = Lab(settings)
    lab.up(inventory, bare=bare, wheels=wheels, fresh=fresh)
    click.echo(_table(report(lab)))
    click.echo(f"The lab is up ({time.monotonic() - began:.1f} s).")


@lab_group.command("down")
@click.pass_obj
@plain_errors
def down(settings: Settings) -> None:
    """Take the lab off this machine; what was slow to make stays in the cache."""
    began = time.monotonic()
    Lab(settings).down()
    click.echo(f"The lab is down ({time.monotonic() - began:.1f} s).")


@lab_group.command("status")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
@plain_errors
def status(context: click.Context, *, as_json: bool) -> None:
    """Show the hosts. Exit code 0: all are well; 3: the lab is down or a host is not well."""
    require_root()
    lab = Lab(context.obj)
    found = report(lab) if state.load(lab.settings) else None
    if as_json:
        click.echo(
            json.dumps(found.as_json() if found else {"name": lab.settings.name, "up": False}, indent=2)
        )
    elif found is None:
        click.echo("The lab is down.")
    else:
        click.echo(_table(found))
    context.exit(0 if found is not None and found.well else _NOT_WELL)


@lab_group.command("exec", context_settings={"ignore_unknown_options": True})
@click.option("--host", metavar="HOST", help="On this host instead of the control side.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
@plain_errors
def exec_(settings: Settings, command: tuple[str, ...], host: str | None) -> None:
    """Run a command on the control side, where the lab's tailnet is the tailnet."""
    require_root()
    lab = Lab(settings)
    if host is None:
        argv, environment = lab.control_command(command), lab.control_environment()
    else:
        argv, environment = lab.host(host).command(command), dict(os.environ)
    sys.stdout.flush()
    os.execvpe(argv[0], argv, environment)  # noqa: S606 - an argument list, no shell string


@lab_group.command("install")
@plain_errors
def install() -> None:
    """Install the Debian packages that the lab and the tests need, as root or through sudo."""
    missing = to_install()
    if not missing:
        click.echo("The machine has all that the lab and the tests need.")
        return
    click.echo(f"Installing with apt-get: {' '.join(missing)} ...")
    install_packages()
    click.echo("Installed.")


@lab_group.command("worker-venv")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--wheels",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="As for `up`.",
)
@click.pass_obj
@plain_errors
def worker_venv(settings: Settings, directory: Path, wheels: Path | None) -> None:
    """Build the environment that nodes have in a directory of this machine."""
    build_worker_venv(settings.cache, settings.checkout, wheels, directory, Progress())


def _table(found: Report) -> str:
    broken = any(host.faults for host in found.hosts)
    header = (
        "HOST", "ADDRESS", "STATE", "CORES DECLARED", "CORES", "MEMORY", *(["FAULTS"] if broken else [])
    )  # fmt: skip
    rows = [header] + [
        (
            host.name,
            host.address or "-",
            host.condition,
            f"{host.cores:g}",
            "no limit" if host.cpu_quota_cores is None else f"{host.cpu_quota_cores:.2f}",
            f"{host.memory_bytes / (1 << 30):.1f} GiB",
            *([", ".join(host.faults)] if broken else []),
        )
        for host in found.hosts
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    control = (found.control_address or "-", found.control_condition, *found.control_faults)
    return "\n".join([*lines, f"control side: {', '.join(control)}"])
