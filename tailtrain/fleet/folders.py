"""Makes and removes folders of ours on a host, as root; no link of the worker's account leads it astray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.errors import FleetError
from tailtrain.fleet import folders_program, remote
from tailtrain.planning import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyinfra.api.host import Host

ROOTS = (layout.PROGRAM_DIR, layout.CONFIG_DIR, layout.STATE_DIR)
"""All that is ours is below these."""


def make(host: Host, *folders: tuple[str, str, str]) -> None:
    """Make folders, each given by path, owner (and group) and octal mode; those that are there are set right.

    Raises:
        FleetError: naming the host and the path that is a link or no folder.
    """
    _do(host, "make its folders", make=folders, timeout=60)


def remove(host: Host, paths: Sequence[str]) -> None:
    """Remove files and folders with all that is in them; those that are not there already are no mistake.

    Raises:
        FleetError: naming the host and the path that is a link or no folder.
    """
    if paths:
        _do(host, "remove what is no longer needed", remove=paths, timeout=900)


def _do(
    host: Host,
    what: str,
    *,
    make: Sequence[tuple[str, str, str]] = (),
    remove: Sequence[str] = (),
    timeout: int,
) -> None:
    request = {"roots": ROOTS, "make": make, "remove": remove}
    refused = remote.ask(host, [folders_program], request, timeout=timeout)["refused"]
    if refused:
        raise FleetError(
            f"could not {what}",
            host=host.name,
            found=refused,
            fix=f"Look who made it so; on {host.name}, move it away and run the same command again",
        )
