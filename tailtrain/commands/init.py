"""`tailtrain init`: an inventory from the tailnet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtrain.commands.add import ssh_user_option
from tailtrain.commands.shared import cooperate, inventory_option
from tailtrain.errors import DeclarationError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailtrain.fleet.newcomers import Newcomer
    from tailtrain.planning.newcomers import Entry
    from tailtrain.tailnet.netmap import Netmap, Peer

GROUP_DATA = Path("group_data") / "all.py"


@click.command()
@click.argument("hosts", nargs=-1, metavar="[HOST...]")
@inventory_option
@click.option("--primary", metavar="NAME", help="The node that aggregates; otherwise the strongest.")
@ssh_user_option
@click.option("--force", is_flag=True, help="Write over an inventory that is there.")
def init(
    hosts: tuple[str, ...], inventory: Path, *, primary: str | None, ssh_user: str | None, force: bool
) -> None:
    """Write an inventory of the machines of your tailnet.

    Logs in to every machine of the tailnet that may be a node, or to each HOST alone, this one included, and
    reads its processors, memory, free disk and GPU; nothing is changed there. The strongest (a GPU, then
    cores, then memory) becomes the primary, the others compute nodes. Machines that cannot be nodes are
    listed in the file as comments, with the reason. Where there is no group_data/all.py, which says what to
    train, one is written that runs as it is.

    An inventory that is there is never written over without --force; to put one machine more into it:
    tailtrain add NAME --write
    """
    if inventory.exists() and not force:
        raise DeclarationError(
            "there is an inventory already",
            field=str(inventory),
            fix="To add a machine to it: tailtrain add NAME --write. To write over it: --force",
        )
    cooperate()
    from tailtrain.commands.files import write_text
    from tailtrain.fleet.membership import name_for_inventory
    from tailtrain.fleet.newcomers import read_newcomers
    from tailtrain.planning.inventory_text import inventory_text
    from tailtrain.planning.training_text import training_text
    from tailtrain.tailnet.daemon import current_netmap

    netmap = current_netmap()
    lead = netmap.find(primary) if primary is not None else None
    asked, left_out = _candidates(netmap, hosts)
    names = [name_for_inventory(netmap, peer) for peer in asked]
    click.echo(f"Asking {len(names)} machines for their hardware...", err=True)
    found = read_newcomers(names, ssh_user=ssh_user)
    left_out |= {newcomer.name: newcomer.reason for newcomer in found if newcomer.entry is None}
    left_out = dict(sorted(left_out.items()))
    if hosts and left_out:
        _refuse(left_out)
    entries = [newcomer.entry for newcomer in found if newcomer.entry is not None]
    first = _primary(entries, name_for_inventory(netmap, lead) if lead else None, left_out)
    others = sorted(
        (entry for entry in entries if entry is not first),
        key=lambda entry: (*(-part for part in entry.strength), entry.name),
    )
    write_text(inventory, inventory_text(first, others, left_out))
    _show(found, first, others, left_out)
    click.echo(f"\n{inventory}: {len(entries)} nodes, {first.name} is the primary.")
    group_data = inventory.parent / GROUP_DATA
    if not group_data.exists() and not GROUP_DATA.exists():
        write_text(group_data, training_text())
        click.echo(f"{group_data}: what to train, and how; look through it.")
    _tell_next(inventory)


def _candidates(netmap: Netmap, hosts: Sequence[str]) -> tuple[list[Peer], dict[str, str]]:
    """Whom to ask, and why others need not be asked."""
    from datetime import UTC, datetime

    from tailtrain.tailnet.devices import impossible, machines_of

    machines = {machine.address: machine for machine in machines_of(netmap, now=datetime.now(UTC))}
    peers: Iterable[Peer] = map(netmap.find, hosts) if hosts else (netmap.me, *netmap.peers)
    asked, left_out = {}, {}
    for peer in peers:
        why_not = impossible(machines[peer.address])
        if why_not is None:
            asked[peer.address] = peer
        else:
            left_out[peer.name] = why_not
    return list(asked.values()), left_out


def _refuse(left_out: dict[str, str]) -> None:
    """Machines that were asked for by name are wanted: without one of them nothing is written.

    Raises:
        UnsupportedError: naming the last of them; those before it are shown.
    """
    *others, (last, reason) = left_out.items()
    for name, why in others:
        click.secho(f"{name}: cannot be a node: {why}", err=True, fg="red")
    raise UnsupportedError(f"cannot be a node: {reason}", host=last, fix="Nothing was written")


def _primary(entries: Sequence[Entry], named: str | None, left_out: dict[str, str]) -> Entry:
    from tailtrain.planning.newcomers import strongest

    if not entries:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise UnsupportedError(
            "no machine of the tailnet can be a node, so nothing was written",
            found=why or "no other machine",
            fix="A new machine joins with what this prints: tailtrain invite",
        )
    if named is None:
        return strongest(entries)
    for entry in entries:
        if entry.name == named:
            return entry
    raise DeclarationError(
        "is not among the nodes, so it cannot be the primary and nothing was written",
        host=named,
        found=left_out.get(named, "not asked"),
    )


def _show(found: Sequence[Newcomer], first: Entry, others: Sequence[Entry], left_out: dict[str, str]) -> None:
    from tailtrain.planning.rendering.text import table

    by_name = {newcomer.name: newcomer for newcomer in found}
    rows = [
        (
            entry.name,
            "primary" if entry is first else "compute",
            str(entry.cores),
            f"{entry.ram_gb} GB",
            f"{entry.storage_gb} GB",
            "yes" if entry.gpu else "no",
            by_name[entry.name].system,
        )
        for entry in (first, *others)
    ]
    head = ("Node", "role", "cores", "memory", "free disk", "GPU", "system")
    lines = table([head, *rows], right=(2, 3, 4), indent=0)
    if emulated := sum(newcomer.emulated for newcomer in found):
        lines += ["", f"{emulated} of these machines are lab hosts: the lab emulates this hardware."]
    if left_out:
        lines += ["", "No nodes, and why", *table(list(left_out.items()))]
    click.echo("\n".join(lines))


def _tell_next(inventory: Path) -> None:
    """What to type now; and what a project needs besides, where it is not here."""
    from tailtrain.planning.rendering.text import table
    from tailtrain.planning.training_text import DEMO_FOLDER

    folder = inventory.parent
    if not (folder / "deploys").is_dir():
        click.echo("deploys/, templates/ and locks/ are not here: deploys run in a clone of tailtrain.")
    steps = [("tailtrain plan", "shows what a deploy would do to each node")]
    group_data = folder / GROUP_DATA
    names_demo = group_data.is_file() and DEMO_FOLDER in group_data.read_text(encoding="utf-8")
    if names_demo and not (folder / DEMO_FOLDER).is_dir():
        steps.insert(0, (f"tailtrain dataset demo {DEMO_FOLDER}", "makes two data sets to try with"))
    click.echo("\n".join(["", "Next", *table(steps)]))
