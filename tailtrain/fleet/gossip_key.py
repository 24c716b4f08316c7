"""The fleet's gossip key: one for all nodes, kept on the control machine, 0600.

Whoever has it can join the gossip and read it. It is kept beside the identities, in a file of 32 random
bytes. Another control machine may have made it: then the primary has it, and it is taken from there.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from typing import TYPE_CHECKING

from tailtrain.errors import FleetError
from tailtrain.fleet import remote
from tailtrain.planning import layout
from tailtrain.planning.observed import Observation
from tailtrain.planning.serf_config import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyinfra.api.host import Host

    from tailtrain.planning.actions import Declared
    from tailtrain.planning.observed import Observed


def fleet_key(work_dir: Path, declared: Declared, hosts: Sequence[Host], observed: Observed) -> bytes:
    """The key that is kept here, else the one that a host has, else a new one; it is kept from then on.

    Args:
        work_dir: what the control machine keeps for the project.
        declared: the fleet; nothing is kept or made for one that needs no key, and the key is empty.
        hosts: of the fleet. The primary is asked before the others.
        observed: what they answered.

    Raises:
        FleetError: the kept file is damaged, or none can be kept; it names the file.
    """
    path = work_dir / "keys" / "gossip.key"
    if not declared.settings.gossips:
        return b""
    if (kept := _kept(path)) is not None:
        return kept
    found = next(
        (
            key
            for host in sorted(hosts, key=lambda host: host.name != declared.primary.hostname)
            if isinstance(answer := observed[host.name], Observation)
            and layout.SERF_KEYRING in answer.secrets
            and (key := _taken(host))
        ),
        None,
    )
    return _keep(path, found or secrets.token_bytes(KEY_BYTES))


def _kept(path: Path) -> bytes | None:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FleetError(
            "the fleet's gossip key cannot be read", field=str(path), found=error.strerror
        ) from None
    if len(key) != KEY_BYTES:
        raise FleetError(
            "the fleet's gossip key is damaged",
            field=str(path),
            found=f"{len(key)} bytes",
            expected=f"{KEY_BYTES} bytes",
            fix="Remove the file; the next plan takes the primary's",
        )
    return key


def _taken(host: Host) -> bytes | None:
    """The key in a host's keyring; None where that holds none.

    It is read with the rights of the account that the file belongs to.
    """
    output = remote.run(host, ["runuser", "-u", layout.ACCOUNT, "--", "cat", layout.SERF_KEYRING])
    try:
        [text] = json.loads(output.stdout)
        key = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        return None
    return key if len(key) == KEY_BYTES else None


def _keep(path: Path, key: bytes) -> bytes:
    """Keep a key, closed to others from its first byte; the one that somebody kept meanwhile counts."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, path)
        except FileExistsError:
            return _kept(path) or key
        finally:
            beside.unlink()
    except OSError as error:
        raise FleetError(
            "the fleet's gossip key cannot be kept", field=str(path), found=error.strerror
        ) from None
    return key
