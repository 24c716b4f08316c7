"""Everything that can be wrong on this machine, said before any host is waited for.

pyinfra connects to all hosts before it runs a deploy. But first of all it runs `config.py` of the folder at
hand, so the project's asks for `check_before_connecting`.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import gevent
from pyinfra_cli.util import parse_cli_arg

from tailtrain.errors import DeclarationError, TailtrainError, UnknownHostError
from tailtrain.fleet.approval import end_with_apply
from tailtrain.fleet.declared import declared_fleet
from tailtrain.fleet.gathering import gather_ahead
from tailtrain.fleet.host_settings import host_settings_problems
from tailtrain.fleet.inventory_file import parsed, read_inventory
from tailtrain.fleet.refusal import Refused
from tailtrain.spec.problems import Problems, nearest, raise_if_any
from tailtrain.tailnet.connector import TailscaleConnector
from tailtrain.tailnet.daemon import current_netmap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyinfra.api.inventory import Inventory


_FIRST_PACKETS_SECONDS = 0.02  # after which hosts have been sent the first packet, and are waited for
_MISSPELT = 0.75  # how alike two names must be: one wrong letter of four

PLANNED = frozenset({"train", "provision", "distribute", "train_workers", "aggregate", "validate", "clean"})
"""The deploys that begin with a plan."""


def check_tailnet(inventory: Inventory) -> None:
    """Check that this machine is in the tailnet, and that no host's name is a slip of the pen.

    A host that the tailnet does not know counts as one that does not answer, as one that is switched off. But
    where a machine of nearly that name is there, and nobody declares it, a plan would take that for one
    that has left the fleet.

    Raises:
        DaemonError: this machine is not in the tailnet; said here once, instead of by every host.
        DeclarationError: the names that are nearly right.
    """
    ours = [host for host in inventory if issubclass(host.connector_cls, TailscaleConnector)]
    if len(ours) < len(inventory):
        return
    netmap = current_netmap()
    problems = Problems()
    declared = {str(host.data.get("ssh_hostname") or host.name).lower() for host in ours}
    others = [peer.name for peer in (netmap.me, *netmap.peers) if peer.name not in declared]
    for host in ours:
        try:
            netmap.find(str(host.data.get("ssh_hostname") or host.name))
        except UnknownHostError as error:
            alike = [name for name in others if _words(name) != _words(host.name)]
            if meant := nearest(host.name, alike, cutoff=_MISSPELT):
                fix = f"Did you mean {meant}? If not, take it out of the inventory"
                problems.found.append(DeclarationError(error.problem, host=host.name, fix=fix))
    problems.raise_if_any()


def _words(name: str) -> str:
    """A name without its numbers: web-1 and web-2 are two machines, not a slip of the pen."""
    return re.sub(r"[0-9]+", "", name.lower())


def check_before_connecting() -> None:
    """Look at what a pyinfra command is about to do, while it reads its configuration.

    Raises:
        Refused: with the text of what is wrong.
    """
    context = click.get_current_context(silent=True)
    if context is None or "operations" not in context.params:
        return
    try:
        end_with_apply()
        _check(context.params)
    except TailtrainError as error:
        raise Refused(str(error)) from None


def _check(options: Mapping[str, Any]) -> None:
    path = Path(options["inventory"])
    if not path.is_file():
        return
    problems = Problems()
    for file in {Path(name) for name in options["operations"] if name.endswith(".py")} | set(
        Path("deploys").glob("*.py")
    ):
        with problems.gathered():
            parsed(file)
    with problems.gathered():
        inventory = read_inventory(
            path, Path.cwd(), override=_override(options), group_data=options["group_data"] or ()
        )
    problems.raise_if_any()
    raise_if_any(host_settings_problems(inventory))
    deploys = {Path(name).stem for name in options["operations"] if Path(name).parent.name == "deploys"}
    if deploys & PLANNED:
        gather_ahead(Path.cwd(), declared_fleet(inventory))
        # What the deploys import takes as long as a few round trips: it is imported during those.
        gevent.spawn_later(_FIRST_PACKETS_SECONDS, import_module, "tailtrain.fleet.operations")
    if options["operations"][0] != "debug-inventory":
        check_tailnet(inventory)


def _override(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line says instead of the files."""
    found = {}
    for said in options["data"]:
        name, equals, value = said.partition("=")
        if not equals:
            raise DeclarationError("says no value", field=f"--data {said}", expected="--data name=value")
        found[name] = parse_cli_arg(value)
    words = ("ssh_user", "ssh_key", "ssh_key_password", "ssh_port", "ssh_password")
    return found | {name: options[name] for name in words if options[name]}
