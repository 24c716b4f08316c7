"""What gossip says of the fleet's nodes: members with their tags, and how far apart they are.

Tags are what a node says about itself to all others: short texts under short names, because Serf carries at
most 512 bytes of them per node. They are read with the same care as any message of a peer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tailtrain.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Status = Literal["alive", "leaving", "left", "failed", "none"]
Role = Literal["primary", "compute"]

MOST_TAG_BYTES = 500
"""Serf's limit is 512 with the encoding's own bytes (memberlist.MetaMaxSize)."""

_MOST_CORES = 1 << 16
_MOST_ROUND = 1 << 53
_RUN_DIGITS = 64


@dataclass(frozen=True)
class Tags:
    """A node's word on itself.

    Attributes:
        role: primary or compute.
        cores: those that its worker may use.
        gpu: whether it trains on a GPU.
        run: id of the run that it works on, empty where none: a node of another run (other code, data or
            plan) is not taken for one of this.
        round: the round that it works on, -1 before the first.
        tokens_per_second: its speed in its last round.
        health: from 0 to 1, see `health`.
    """

    role: Role
    cores: int
    gpu: bool
    run: str = ""
    round: int = -1
    tokens_per_second: float = 0.0
    health: float = 1.0

    def to_serf(self) -> dict[str, str]:
        """As the agent spreads them."""
        return {
            "role": self.role,
            "cores": str(self.cores),
            "gpu": "1" if self.gpu else "0",
            "run": self.run,
            "round": str(self.round),
            "tps": f"{self.tokens_per_second:.1f}",
            "health": f"{self.health:.3f}",
        }


def read_tags(raw: Mapping[str, str], node: str) -> Tags:
    """Check and read the tags of a member; names that are not known are left for later versions.

    Raises:
        PeerError: naming the node, the tag and what it says.
    """

    def text(name: str) -> str:
        if name not in raw:
            raise PeerError("a node's tags lack one", host=node, field=name)
        return raw[name]

    def number(name: str, least: float, most: float) -> float:
        try:
            value = float(text(name))
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise PeerError("a node's tag is not acceptable", host=node, field=name, found=raw[name][:80])
        return value

    def whole(name: str, least: int, most: int) -> int:
        value = number(name, least, most)
        if value != int(value):
            raise PeerError("a node's tag is not acceptable", host=node, field=name, found=raw[name][:80])
        return int(value)

    role, run = text("role"), text("run")
    if role not in get_args(Role):
        raise PeerError("a node's tag is not acceptable", host=node, field="role", found=role[:80])
    if len(run) > _RUN_DIGITS or not (run.isalnum() or not run):
        raise PeerError("a node's tag is not acceptable", host=node, field="run", found=run[:80])
    return Tags(
        role=role,  # type: ignore[arg-type]  # checked above
        cores=whole("cores", 1, _MOST_CORES),
        gpu=bool(whole("gpu", 0, 1)),
        run=run,
        round=whole("round", -1, _MOST_ROUND),
        tokens_per_second=number("tps", 0, 1e15),
        health=number("health", 0, 1),
    )


@dataclass(frozen=True)
class Member:
    """A node as the local agent knows it.

    Attributes:
        name: the node's name.
        address: where its agent listens for gossip.
        status: what the agent holds of it; `failed` is its own finding or what others told it.
        tags: as they came, unchecked.
    """

    name: str
    address: str
    status: Status
    tags: Mapping[str, str]


def read_member(raw: Any) -> Member:
    """A member record of the agent.

    Raises:
        PeerError: it is none.
    """
    try:
        name, status, address = str(raw["Name"]), raw["Status"], bytes_of(raw["Addr"])
        tags = {str(key): str(value) for key, value in (raw["Tags"] or {}).items()}
        port = int(raw["Port"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PeerError("the agent's record of a member cannot be read", found=repr(raw)[:80]) from error
    if status not in get_args(Status):
        raise PeerError("a member's status is unknown", host=name, found=repr(status)[:80])
    dotted = ".".join(str(byte) for byte in address[-4:])  # IPv4, or IPv4 in IPv6 as Go keeps it
    return Member(name, f"{dotted}:{port}", status, tags)


def bytes_of(value: Any) -> bytes:
    """The bytes behind a string that the agent sent: addresses and payloads are not text."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if value is None:
        return b""
    raise TypeError(value)


@dataclass(frozen=True)
class Coordinate:
    """Where a node is in Serf's space of round trips (Vivaldi, SIGCOMM 2004), all in seconds.

    Attributes:
        vector: the Euclidean part.
        height: the way through the node's own access link.
        adjustment: what the others' measurements say is left out.
        error: how sure the node is: from 1.5, nothing known, towards 0.
    """

    vector: Sequence[float]
    height: float
    adjustment: float
    error: float


def read_coordinate(raw: Any, node: str) -> Coordinate | None:
    """The agent's answer about a node's coordinate; None where it knows none.

    Raises:
        PeerError: it cannot be read.
    """
    try:
        if not raw["Ok"]:
            return None
        found = raw["Coord"]
        coordinate = Coordinate(
            tuple(float(value) for value in found["Vec"]),
            float(found["Height"]),
            float(found["Adjustment"]),
            float(found["Error"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError("a node's coordinate cannot be read", host=node, found=repr(raw)[:80]) from error
    values = (*coordinate.vector, coordinate.height, coordinate.adjustment, coordinate.error)
    if not all(math.isfinite(value) for value in values):
        raise PeerError("a node's coordinate is not finite", host=node, found=repr(raw)[:80])
    return coordinate


def round_trip(one: Coordinate, other: Coordinate) -> float:
    """The estimated round trip between two nodes, in seconds.

    The distance of the vectors plus both heights, corrected by both adjustments unless that makes it
    negative (Serf's documentation, "Network Coordinates").

    Raises:
        PeerError: the coordinates are of different spaces.
    """
    if len(one.vector) != len(other.vector):
        raise PeerError("two coordinates have different dimensions", found=len(one.vector))
    raw = math.dist(one.vector, other.vector) + one.height + other.height
    adjusted = raw + one.adjustment + other.adjustment
    return adjusted if adjusted > 0 else raw
