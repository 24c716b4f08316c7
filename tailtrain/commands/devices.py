"""`tailtrain devices`: the machines of the tailnet against the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailtrain.commands.credentials import credentials_help
from tailtrain.commands.shared import cooperate, inventory_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command(epilog=credentials_help("devices:core:read"))
@inventory_option
@click.option(
    "--json", "as_json", is_flag=True, help="As JSON: times in full, and null for what is not known."
)
def devices(inventory: Path, *, as_json: bool) -> None:
    """List the machines of your tailnet: which of them train, which could, and why others cannot.

    What Tailscale sees from this machine is enough. With credentials for Tailscale's admin API, machines are
    listed too that the tailnet's policy hides from this one, and those that wait to be approved.

    Nothing is connected to, and nothing is changed. A machine that is not in the tailnet yet joins it with
    what `tailtrain invite` prints; one that is there becomes a node with `tailtrain add`.
    """
    cooperate()
    import os
    from datetime import UTC, datetime

    import msgspec

    from tailtrain.fleet import connect
    from tailtrain.fleet.membership import Membership, membership
    from tailtrain.tailnet.credentials import from_environment
    from tailtrain.tailnet.daemon import current_netmap
    from tailtrain.tailnet.devices import machines_of
    from tailtrain.tailnet.listing import listing_of, render_listing

    credentials = from_environment(os.environ)
    netmap, now = current_netmap(), datetime.now(UTC)
    members = Membership({}, {}, ())
    if inventory.is_file():
        members = membership(connect.declared_state(inventory).inventory, netmap)
    if credentials is None:
        machines = machines_of(netmap, now=now)
    else:
        from tailtrain.tailnet.admin import AdminApi

        machines = machines_of(netmap, AdminApi(credentials).devices(), now=now)
    listing = listing_of(
        machines,
        members.roles,
        members.missing,
        now=now,
        admin_api=credentials is not None,
        inventory=str(inventory) if inventory.is_file() else None,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(listing), indent=2))
    else:
        click.echo(render_listing(listing), nl=False)
