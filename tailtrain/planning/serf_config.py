"""What the Serf agent of a node is told: its configuration file and its keyring.

The agent listens for gossip on the tailnet address alone and for RPC on loopback, where it asks for a key.
The reasons for what differs from Serf's defaults:

- `profile` lan: a death is found in 6 to 8 s; wan takes 37 s (measured with six agents on Debian's Serf).
- `retry_join` names all others: nodes may start in any order, and whoever starts later meets all that are up,
  so islands cannot form. Serf's own pause between tries is 30 s, ours 2 s.
- `reconnect_interval` 5 s instead of 30: both sides of a partition hold each other failed, and only these
  tries heal it.
- `snapshot_path` and `rejoin_after_leave`: a node that restarts finds the others even if all of `retry_join`
  moved.
- `leave_on_terminate`: who is stopped in order says so, and nobody waits for a death to be confirmed.
- `disable_name_resolution`: in a conflict of names Serf shuts a member of the minority down by itself;
  names are unique in a tailnet.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GOSSIP_PORT = 45_003
RPC_PORT = 45_004
KEY_BYTES = 32
_RPC_PURPOSE = b"tailtrain serf rpc "


def agent_config(
    *,
    node: str,
    address: str,
    others: Iterable[str],
    tags: Mapping[str, str],
    key: bytes,
    keyring_path: str,
    snapshot_path: str,
    gossip_port: int = GOSSIP_PORT,
    rpc_port: int = RPC_PORT,
) -> dict[str, object]:
    """The agent's configuration as plain values, the same for the same arguments.

    Args:
        node: its name in the fleet.
        address: its tailnet address.
        others: the addresses of all other nodes.
        tags: what it says of itself until its worker says more.
        key: the fleet's gossip key, from which the key for RPC is made; it stays out of this file.
        keyring_path: where the keyring is on the node.
        snapshot_path: where the agent may keep its snapshot.
        gossip_port: for UDP and TCP; both must pass.
        rpc_port: on loopback.
    """
    return {
        "node_name": node,
        "bind": f"{address}:{gossip_port}",
        "rpc_addr": f"127.0.0.1:{rpc_port}",
        "rpc_auth": rpc_key(key, node),
        "keyring_file": keyring_path,
        "profile": "lan",
        "retry_join": [f"{other}:{gossip_port}" for other in sorted(others)],
        "retry_interval": "2s",
        "reconnect_interval": "5s",
        "snapshot_path": snapshot_path,
        "rejoin_after_leave": True,
        "leave_on_terminate": True,
        "disable_name_resolution": True,
        "log_level": "WARN",
        "tags": dict(sorted(tags.items())),
    }


def keyring(key: bytes) -> str:
    """The keyring file: one key, which encrypts and signs all gossip.

    Raises:
        DeclarationError: the key has another length (its bytes are not shown).
    """
    if len(key) != KEY_BYTES:
        raise DeclarationError(
            "the gossip key has the wrong length",
            field="gossip key",
            found=f"{len(key)} bytes",
            expected=f"{KEY_BYTES} bytes",
        )
    return json.dumps([b64encode(key).decode()]) + "\n"


def rpc_key(key: bytes, node: str) -> str:
    """What a node's agent asks local clients for; made from the gossip key, which it does not give away.

    Without it every account of the host could make the agent leave the fleet.
    """
    return hmac.new(key, _RPC_PURPOSE + node.encode(), hashlib.sha256).hexdigest()
