"""Serf on one host: its files, which are nobody's business, and what is to be done so that its agent runs.

The fleet's gossip key is in the content of these files and nowhere else: plans, receipts and hosts' answers
have hashes of them. The key is 32 random bytes, so a hash gives nothing of it away.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.observed import UnitState
from tailtrain.planning.parts import Action, Phase
from tailtrain.planning.serf_config import agent_config, keyring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.planning.node_config import NodeLimits, Peer
    from tailtrain.planning.observed import Observation
    from tailtrain.planning.parts import FileChange
    from tailtrain.planning.settings import Settings

_DIGITS = 16
_STOPPED = ("inactive", "failed")


@dataclass(frozen=True)
class SecretFile:
    """A file that the worker's account alone may read. Its content is in no representation of it."""

    path: str
    content: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """Of its content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def as_found(self) -> str:
        """What a probe answers where it is as it should be."""
        return f"{self.sha256} {layout.SECRET_MODE}"


@dataclass(frozen=True)
class SerfPlan:
    """The agent of one host: its files, and a digest of them that the running agent bears."""

    files: tuple[SecretFile, ...]

    @property
    def digest(self) -> str:
        """Other digits where any of the files differs."""
        return hashlib.sha256("".join(file.sha256 for file in self.files).encode()).hexdigest()[:_DIGITS]

    def lacking(self, answer: Observation) -> tuple[SecretFile, ...]:
        """The files that a host does not have, or not so."""
        return tuple(file for file in self.files if answer.secrets.get(file.path, "") != file.as_found)

    def new_key(self, answer: Observation) -> bool:
        """Whether a host has another key than the fleet's; its worker uses that one until it is restarted."""
        found = answer.secrets.get(layout.SERF_KEYRING, "").partition(" ")[0]
        return bool(found) and any(
            file.path == layout.SERF_KEYRING and file.sha256 != found for file in self.files
        )


def serf_plan(
    settings: Settings, me: Peer, peers: Sequence[Peer], limits: NodeLimits, key: bytes
) -> SerfPlan | None:
    """What a host's agent is to be; None where the settings need none.

    Args:
        settings: the protocol, and the gossip port.
        me: the node.
        peers: all nodes, it included.
        limits: what its worker may use.
        key: the fleet's gossip key.

    Raises:
        DeclarationError: the key has the wrong length.
    """
    if not settings.gossips:
        return None
    config = agent_config(
        node=me.node,
        address=me.address,
        others=[peer.address for peer in peers if peer.node != me.node and peer.address],
        tags={
            "role": me.role,
            "cores": str(limits.threads),
            "gpu": "1" if limits.device == "cuda" else "0",
        },
        key=key,
        keyring_path=layout.SERF_KEYRING,
        snapshot_path=layout.SERF_SNAPSHOT,
        gossip_port=settings.engine.gossip_port,
    )
    return SerfPlan(
        (
            SecretFile(layout.SERF_CONFIG, (json.dumps(config, indent=1) + "\n").encode()),
            SecretFile(layout.SERF_KEYRING, keyring(key).encode()),
        )
    )


def missing_packages(answer: Observation, serf: SerfPlan | None) -> tuple[str, ...]:
    """The packages that a host lacks; Serf's is one of them only where an agent is to run."""
    return tuple(name for name in answer.missing_packages if serf or name != layout.SERF_PACKAGE)


def mask_actions(answer: Observation, serf: SerfPlan | None) -> Iterator[Action]:
    """Before the package comes: its own unit must never run."""
    unit = answer.units.get(layout.DEBIAN_SERF_UNIT, UnitState())
    if serf and not (unit.masked and unit.active in _STOPPED):
        why = "not masked" if unit.active in _STOPPED else "it runs, without a key and on all addresses"
        yield Action(Phase.PROVISION, "mask", f"mask Debian's own {layout.DEBIAN_SERF_UNIT}", why)


def secret_actions(answer: Observation, serf: SerfPlan | None) -> Iterator[Action]:
    """The agent's files."""
    if serf and serf.lacking(answer):
        there = any(answer.secrets.get(file.path) for file in serf.files)
        yield Action(
            Phase.PROVISION,
            "gossip",
            "write the gossip key and Serf's configuration, for the worker alone",
            "differ, or their permissions do" if there else "not there",
        )


def agent_actions(
    answer: Observation, serf: SerfPlan | None, files: Sequence[FileChange], protocol: str
) -> Iterator[Action]:
    """After all files are there: the agent runs with them, or is removed where none is needed.

    Args:
        answer: of the host.
        serf: what its agent is to be; None where none is to be.
        files: the texts that are to be written there.
        protocol: of coordination.
    """
    phase, unit = Phase.PROVISION, answer.units.get(layout.SERF_UNIT, UnitState())
    place = f"{layout.UNIT_DIR}/{layout.SERF_UNIT}"
    if serf is None:
        if answer.files.get(place) is not None or any(answer.secrets.values()):
            what = "leave and remove membership: Serf's unit, configuration and key"
            yield Action(phase, "retire", what, f"{protocol} needs none")
    elif unit.active != "active":
        yield Action(phase, "agent", "start membership", "not running")
    elif serf.lacking(answer) or any(change.path == place for change in files):
        yield Action(phase, "agent", "restart membership", "its configuration or unit changes")
    elif unit.applied not in ("", serf.digest):
        yield Action(phase, "agent", "restart membership", "runs with another configuration")
    elif not unit.enabled:
        yield Action(phase, "agent", "have membership start with the host", "would not, after a boot")
