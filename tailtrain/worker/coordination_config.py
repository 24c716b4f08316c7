"""Where a node listens, whom it works with and how they average: `coordination` of worker.json."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.worker.data_config import LAST_PORT, NAME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailtrain.worker.config_reader import Section

_PEER_ID = re.compile(r"[1-9A-HJ-NP-Za-km-z]{20,80}")
_DIGEST = re.compile(r"[0-9a-f]{4,64}")
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Peer:
    """Another node of the run."""

    node: str
    role: str
    address: str
    port: int
    peer_id: str


@dataclass(frozen=True)
class MadeOf:
    """Digests of what a run is made of: the worker's code, the data sets, what is planned."""

    code: str
    data: str
    plan: str


@dataclass(frozen=True)
class CoordinationConfig:
    """Where this node listens, whom it works with, and how they average. `quorum` counts this node too.

    Attributes:
        all_each: every how many rounds all average together; otherwise pairs do (eneGossip).
        compression: in what form weights travel: none, fp16 or 8-bit.
        reducers: the part of the weights that each node averages for all; empty for equal parts.
        gossip: the Serf agent's configuration on this node; None without eneGossip.
        made_of: what a peer must have the same of: code, data and plan, as digests.
    """

    protocol: str
    address: str
    port: int
    quorum: int
    all_each: int
    compression: str
    reducers: Mapping[str, float]
    gossip: Path | None
    made_of: MadeOf
    peers: tuple[Peer, ...]


def read_coordination(section: Section) -> CoordinationConfig:
    """Check and read the section; WorkerError where something is not acceptable."""
    coordination = CoordinationConfig(
        protocol=section.one_of("protocol", "decentralized", "centralized", "eneGossip"),
        address=section.address("address"),
        port=section.integer("port", 1, LAST_PORT),
        quorum=section.integer("quorum", 1),
        all_each=section.integer("all_each", 0),
        compression=section.one_of("compression", "none", "fp16", "8-bit"),
        reducers=_reducers(section),
        gossip=section.absolute_path_or_none("gossip"),
        made_of=_made_of(section.section("made_of")),
        peers=tuple(_peer(peer) for peer in section.sections("peers")),
    )
    section.end()
    return coordination


def _reducers(section: Section) -> Mapping[str, float]:
    """Parts by node that add up to 1, or none."""
    parts = section.section("reducers")
    found = {node: parts.number(node) for node in parts.names()}
    if found and not math.isclose(sum(found.values()), 1.0, abs_tol=_ROUNDING):
        raise section.bad("reducers", found, "parts that add up to 1, or none")
    return found


def _made_of(section: Section) -> MadeOf:
    made_of = MadeOf(
        *(section.text(name, _DIGEST, "hexadecimal digits") for name in ("code", "data", "plan"))
    )
    section.end()
    return made_of


def _peer(section: Section) -> Peer:
    peer = Peer(
        node=section.text("node", NAME, "a host name"),
        role=section.one_of("role", "primary", "compute"),
        address=section.address("address"),
        port=section.integer("port", 1, LAST_PORT),
        peer_id=section.text("peer_id", _PEER_ID, "a libp2p peer id"),
    )
    section.end()
    return peer
