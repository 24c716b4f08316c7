"""`tailtrain add`: a machine's hardware, and its line in the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailtrain.commands.shared import cooperate, inventory_option
from tailtrain.errors import DeclarationError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

ssh_user_option = click.option(
    "--ssh-user", metavar="USER", help="Log in as this user, who is root or has sudo without a password."
)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@inventory_option
@click.option("--write", is_flag=True, help="Put the line into the inventory's list `compute`.")
@ssh_user_option
def add(names: tuple[str, ...], inventory: Path, *, write: bool, ssh_user: str | None) -> None:
    """Read the hardware of machines that are in the tailnet, and make nodes of them.

    Logs in to each NAME (as `tailtrain devices` lists it), reads its processors, memory, free disk and GPU,
    and prints its line for the inventory. Nothing is changed there. With --write the line is put at the end
    of the list `compute`, and the rest of the file stays byte for byte; the next `tailtrain plan` shows what
    the new node takes over, and nothing is sent to it before that is applied.

    Where one of the machines cannot be a node, the reason is said and nothing is written.
    """
    cooperate()
    from tailtrain.commands.files import read_text, write_text
    from tailtrain.fleet import connect
    from tailtrain.fleet.membership import membership, name_for_inventory
    from tailtrain.fleet.newcomers import read_newcomers
    from tailtrain.planning.inventory_text import entry_text, with_entry
    from tailtrain.tailnet.daemon import current_netmap

    if write and not inventory.is_file():
        raise DeclarationError(
            "no such inventory", field=str(inventory), fix="To write one from the tailnet: tailtrain init"
        )
    netmap = current_netmap()
    peers = {peer.address: peer for peer in map(netmap.find, names)}
    if inventory.is_file():
        known = membership(connect.declared_state(inventory).inventory, netmap)
        for address, peer in peers.items():
            if address in known.names:
                raise DeclarationError(
                    "is in the inventory already",
                    host=peer.name,
                    field=str(inventory),
                    found=f"{known.names[address]}, {known.roles[address]}",
                )
    found = read_newcomers([name_for_inventory(netmap, peer) for peer in peers.values()], ssh_user=ssh_user)
    text = read_text(inventory) if write else ""
    for newcomer in found:
        if newcomer.entry is not None:
            click.echo(f"    {entry_text(newcomer.entry)},")
            text = with_entry(text, newcomer.entry, file=str(inventory)) if write else text
    if refused := [newcomer for newcomer in found if newcomer.entry is None]:
        *others, last = refused
        for newcomer in others:
            click.secho(f"{newcomer.name}: cannot be a node: {newcomer.reason}", err=True, fg="red")
        raise UnsupportedError(
            f"cannot be a node: {last.reason}", host=last.name, fix="Nothing was written" if write else None
        )
    if write:
        write_text(inventory, text)
        click.echo(f"Written into {inventory}. What that changes: tailtrain plan", err=True)
    else:
        click.echo(f"Put this into the list compute of {inventory}, or run again with --write.", err=True)
