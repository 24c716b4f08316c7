"""Peer identities made here for nodes that have none yet, kept until the node has it.

They are kept so that a dry run and the deploy after it name the same peers. The node's own identity, once it
is there, is the one that counts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tailtrain.errors import FleetError
from tailtrain.fleet.identity import new_identity, peer_id_of

if TYPE_CHECKING:
    from pathlib import Path


def kept_identity(folder: Path, node: str) -> tuple[bytes, str]:
    """The identity kept for a node, made if there is none: the key file's content and the peer id.

    Raises:
        FleetError: a kept file is damaged, or none can be kept; it names node and file.
    """
    path = folder / f"{node}.key"
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return _new_identity(folder, node)
    except OSError as error:
        raise FleetError(
            "the peer identity that is kept for it cannot be read",
            host=node,
            field=str(path),
            found=error.strerror,
        ) from None
    try:
        return key, peer_id_of(key)
    except FleetError:
        raise FleetError(
            "the peer identity that is kept for it is damaged",
            host=node,
            field=str(path),
            fix="Remove the file; the next deploy makes a new identity",
        ) from None


def _new_identity(folder: Path, node: str) -> tuple[bytes, str]:
    key, peer_id = new_identity()
    beside = folder / f".{node}.new"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Closed to others from the first byte.
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(key)
        beside.replace(folder / f"{node}.key")
    except OSError as error:
        raise FleetError(
            "no peer identity can be kept for it", host=node, field=str(folder), found=error.strerror
        ) from None
    return key, peer_id


def forget_identity(folder: Path, node: str) -> None:
    """Remove a kept identity: the node has it."""
    (folder / f"{node}.key").unlink(missing_ok=True)
