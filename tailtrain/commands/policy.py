"""`tailtrain policy`: what the tailnet's policy must let the fleet do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailtrain.commands.credentials import credentials_help
from tailtrain.commands.shared import cooperate, inventory_option
from tailtrain.errors import DeclarationError, TailnetError
from tailtrain.exit_codes import EXIT_CHANGES, EXIT_NO_CHANGES

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.tailnet.policy import PolicyNeeds
    from tailtrain.tailnet.policy_check import PolicyVerdict


@click.command(epilog=credentials_help("policy_file:read"))
@inventory_option
@click.option(
    "--check",
    is_flag=True,
    help="Ask the admin API whether the policy gives that, as it is and with the rules.",
)
@click.pass_context
def policy(ctx: click.Context, inventory: Path, *, check: bool) -> None:
    """Print the rules that the tailnet's policy must have for this fleet, to merge into it.

    This machine must be let in to the nodes by Tailscale SSH, as the users that the inventory says, and the
    nodes must reach each other's ports that the declared strategy and protocol use; nothing more. The rules
    are made from the inventory, from who owns which machine, and from templates/tailnet-policy.hujson.j2.

    With --check the admin API says what the tailnet's policy lacks, whether it is right once the rules are
    merged into it, and who could reach the nodes then. Exit code 0: nothing is lacking, 2: the rules must be
    merged, 1: an error. The policy is only ever read and checked: who saves it is you.
    """
    cooperate()
    import os

    from tailtrain.tailnet.policy import TEMPLATE, policy_text

    if check:
        from tailtrain.tailnet.credentials import required

        credentials = required(os.environ, "to check the policy")
    needs = _needs(inventory)
    template = inventory.parent / "templates" / TEMPLATE
    if not template.is_file():
        raise DeclarationError(
            "no such template", field=str(template), fix="Go to the folder that holds templates/"
        )
    rules = policy_text(needs, template.read_text(encoding="utf-8"))
    for node in needs.out_of_reach:
        click.secho(
            f"{node.name}: belongs to {node.identity.name}, so no rule lets {needs.source.name} "
            "log in to it: tag it (admin console, Machines), or give it an SSH server with your key",
            err=True,
            fg="yellow",
        )
    if not check:
        click.echo(rules, nl=False)
        return
    from tailtrain.tailnet.admin import AdminApi
    from tailtrain.tailnet.policy_check import check_policy

    verdict = check_policy(AdminApi(credentials), rules, needs.targets)
    if not verdict.lacking:
        _show_access(needs, verdict)
        click.echo("Nothing is lacking: the tailnet's policy lets this fleet train.")
        ctx.exit(EXIT_NO_CHANGES)
    click.echo("The tailnet's policy lacks:")
    click.echo("".join(f"  {line}\n" for line in verdict.lacking))
    click.echo(rules)
    if verdict.wrong:
        raise TailnetError(
            "with these rules merged the policy is still not right", found="; ".join(verdict.wrong)
        )
    _show_access(needs, verdict)
    click.echo("With these rules merged the policy is right. Merge and save them; nothing was saved here.")
    ctx.exit(EXIT_CHANGES)


def _needs(inventory: Path) -> PolicyNeeds:
    """Who logs in where, from the inventory and the local daemon."""
    import getpass

    from tailtrain.commands.invite import DEFAULT_TAG
    from tailtrain.fleet import connect
    from tailtrain.fleet.declared import declared_fleet
    from tailtrain.tailnet.daemon import current_netmap, read_status
    from tailtrain.tailnet.owners import identity_of, logins_of
    from tailtrain.tailnet.policy import PolicyNeeds, PolicyNode

    state = connect.declared_state(inventory)
    settings = declared_fleet(state.inventory).settings
    netmap, logins = current_netmap(), logins_of(read_status())
    nodes = []
    for host in state.inventory:
        peer = netmap.find(host.data.get("ssh_hostname") or host.name)
        user = None if peer.is_self else host.data.get("ssh_user") or getpass.getuser()
        nodes.append(PolicyNode(host.name, peer.address, identity_of(peer, logins, DEFAULT_TAG), user))
    me = identity_of(netmap.me, logins, DEFAULT_TAG)
    return PolicyNeeds(
        control=netmap.me.name,
        source=me,
        nodes=nodes,
        worker_port=settings.worker_port,
        chunk_port=settings.chunk_port,
        gossip_port=settings.engine.gossip_port if settings.gossips else None,
        beacon_port=None if settings.data_parallel else settings.engine.beacon_port,
    )


def _show_access(needs: PolicyNeeds, verdict: PolicyVerdict) -> None:
    from tailtrain.planning.rendering.text import table

    names = {node.address: node.name for node in needs.nodes}
    rows = [("Node", "port", "is reached from")]
    for access in verdict.access:
        address, _, port = access.target.rpartition(":")
        rows.append((names[address], port, ", ".join(access.sources) or "nobody"))
    click.echo("\n".join([*table(rows, right=(1,), indent=0), ""]))
