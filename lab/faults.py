"""The `lab fault` commands: break a host in one way, and mend it. `lab up` mends all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from lab.lab import Lab
from lab.plain_errors import plain_errors
from lab.system import require_root

if TYPE_CHECKING:
    from lab.settings import Settings
    from lab.tailnet import SSHPolicy

_HOST = click.argument("host")
_MAYBE_HOST = click.argument("host", required=False)
_PEERS = click.option(
    "--from", "peers", multiple=True, metavar="HOST", help="From this host alone; may be repeated."
)


@click.group("fault")
def fault_group() -> None:
    """Break a host of the lab in one way, or mend it; `lab up` mends all."""


def _lab(settings: Settings) -> Lab:
    require_root()
    return Lab(settings)


@fault_group.command("cut")
@_HOST
@_PEERS
@click.pass_obj
@plain_errors
def cut(settings: Settings, host: str, peers: tuple[str, ...]) -> None:
    """Cut a host off from all others, or from some of them; its processes go on."""
    _lab(settings).host(host).cut_off(*peers)
    click.echo(f"{host} is cut off from {', '.join(peers) or 'everything'}.")


@fault_group.command("relayed")
@_HOST
@_PEERS
@click.pass_obj
@plain_errors
def relayed(settings: Settings, host: str, peers: tuple[str, ...]) -> None:
    """Leave a host only the tailnet's relay to all others, or to some of them; returns when it uses it."""
    _lab(settings).host(host).relay(*peers)
    click.echo(f"{host} is reached through the relay from {', '.join(peers) or 'everywhere'}.")


@fault_group.command("slow")
@_MAYBE_HOST
@click.option("--ms", type=click.FloatRange(0, 10_000, min_open=True), help="Delay each way.")
@click.option("--mbit", type=click.FloatRange(0.1, 10_000), help="Megabits a second, each way.")
@click.pass_obj
@plain_errors
def slow(settings: Settings, host: str | None, ms: float | None, mbit: float | None) -> None:
    """Delay or narrow, or both, what goes to and from HOST, or else the control side, in each direction."""
    if ms is None and mbit is None:
        message = "one of --ms and --mbit is needed, or both"
        raise click.UsageError(message)
    lab = _lab(settings)
    link, name = (lab.host(host).link if host else lab.link), host or "the control side"
    if ms is not None:
        link.slow_down(ms / 1000)
        click.echo(f"A round trip to {name} takes {2 * ms:g} ms longer.")
    if mbit is not None:
        link.narrow(mbit)
        click.echo(f"The link of {name} carries {mbit:g} Mbit/s each way.")


@fault_group.command("restore")
@_MAYBE_HOST
@click.pass_obj
@plain_errors
def restore(settings: Settings, host: str | None) -> None:
    """Undo `cut`, `relayed` and `slow` of HOST, or else of the control side."""
    lab = _lab(settings)
    (lab.host(host).link if host else lab.link).restore()
    click.echo(f"{host or 'The control side'} is connected as before.")


@fault_group.command("power-cut")
@_HOST
@click.pass_obj
@plain_errors
def power_cut(settings: Settings, host: str) -> None:
    """Kill a host's every process at once, as when its power fails."""
    _lab(settings).host(host).power_cut()
    click.echo(f"{host} is off; switch it on with: tailtrain lab fault boot {host}")


@fault_group.command("boot")
@_HOST
@click.pass_obj
@plain_errors
def boot(settings: Settings, host: str) -> None:
    """Switch a host on again after `power-cut`, and wait until it is back in the tailnet."""
    _lab(settings).host(host).boot()
    click.echo(f"{host} is back.")


@fault_group.command("quota")
@_HOST
@click.argument("cores", metavar="CORES|none")
@click.pass_obj
@plain_errors
def quota(settings: Settings, host: str, cores: str) -> None:
    """Limit a host to CORES' worth of processor time, such as 0.5; none: no limit."""
    try:
        limit = None if cores == "none" else float(cores)
    except ValueError:
        limit = -1.0
    if limit is not None and not 0 < limit <= 1024:  # noqa: PLR2004 - said in the message
        message = f"{cores!r} is no number of cores: a number above 0, or none"
        raise click.BadParameter(message)
    _lab(settings).host(host).set_cpu_quota(limit)
    click.echo(f"{host} has {'no limit' if limit is None else f'{limit:g} cores'}.")


@fault_group.command("ssh")
@_HOST
@click.argument("action", type=click.Choice(["accept", "deny", "check"]))
@click.pass_obj
@plain_errors
def ssh(settings: Settings, host: str, action: str) -> None:
    """Set what the tailnet's policy says of logins to a host."""
    lab = _lab(settings)
    lab.coordination.set_ssh_policy(lab.host(host).name, cast("SSHPolicy", action))
    click.echo(f"Logins to {host}: {action}.")


@fault_group.command("key")
@_HOST
@click.argument("state", type=click.Choice(["expired", "valid"]))
@click.pass_obj
@plain_errors
def key(settings: Settings, host: str, state: str) -> None:
    """Let a host's node key expire, or be valid again."""
    lab = _lab(settings)
    lab.coordination.set_key_expired(lab.host(host).name, expired=state == "expired")
    click.echo(f"The key of {host} is {state}.")
