"""The local Serf agent: members and their tags, events, queries to the whole fleet, round trips."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import PeerError, WorkerError
from tailtrain.worker.gossip.members import (
    MOST_TAG_BYTES,
    Coordinate,
    Member,
    bytes_of,
    read_coordinate,
    read_member,
    round_trip,
)
from tailtrain.worker.gossip.rpc import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

RPC_ADDRESS = ("127.0.0.1", 7373)
MOST_PAYLOAD_BYTES = 900
"""Of a query or an answer; Serf's limit is 1024 with what it adds, so that it fits a datagram."""

_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        kind: `member-join`, `member-leave`, `member-failed`, `member-update`, `member-reap` or `query`.
        members: for member events, whom it is about.
        name: of a query.
        payload: of a query.
        number: what `Agent.respond` needs to answer a query.
    """

    kind: str
    members: tuple[Member, ...] = ()
    name: str = ""
    payload: bytes = b""
    number: int = 0


def read_event(raw: Any) -> Event:
    """An event record of the agent.

    Raises:
        PeerError: it is none.
    """
    try:
        kind = str(raw["Event"])
        if kind != "query":
            members = raw.get("Members") or ()
            return Event(kind, tuple(read_member(each) for each in members))
        return Event(kind, (), str(raw["Name"]), bytes_of(raw["Payload"]), int(raw["ID"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PeerError("an event of the agent cannot be read", found=repr(raw)[:80]) from error


class Agent:
    """A connection to the local agent, for any number of threads.

    Args:
        address: host and port of its RPC listener.
        key: what its `rpc_auth` asks for.
        closed: called once, in another thread, when the connection is over.

    Raises:
        AgentGoneError: there is no agent at that address, or it refuses the key.
    """

    def __init__(
        self,
        address: tuple[str, int] = RPC_ADDRESS,
        key: str | None = None,
        *,
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._connection = Connection(address, key, closed=closed)
        try:
            self.name = str(self._connection.request("stats")["agent"]["name"])
        except WorkerError:
            self._connection.close()
            raise
        """The agent's own node."""

    def members(self) -> dict[str, Member]:
        """All that the agent knows, itself and those that failed or left included."""
        answer = self._connection.request("members")
        members = [read_member(raw) for raw in answer["Members"] or ()]
        return {member.name: member for member in members}

    def trouble(self) -> int:
        """The agent's doubt in itself (Lifeguard's awareness): 0 is none, 8 the most.

        It grows with each of its own probes that nobody answers, so within seconds where this node is cut
        off; because the agent doubts itself, it then takes several times as long to hold others failed.
        """
        return int(self._connection.request("stats")["serf"]["health_score"])

    def set_tags(self, tags: Mapping[str, str], *, remove: Iterable[str] = ()) -> None:
        """Change or add tags of this node; the others that it has stay. All members see it within a second.

        Raises:
            WorkerError: they are too long, or the agent refuses.
        """
        size = sum(len(key.encode()) + len(value.encode()) + 4 for key, value in tags.items())
        if size > MOST_TAG_BYTES:
            raise WorkerError("the tags are too long", found=f"{size} bytes", expected=MOST_TAG_BYTES)
        self._connection.request("tags", {"Tags": dict(tags), "DeleteTags": list(remove)})

    def coordinate(self, node: str) -> Coordinate | None:
        """Where a node is; None where nothing was measured yet."""
        return read_coordinate(self._connection.request("get-coordinate", {"Node": node}), node)

    def round_trips(self, nodes: Collection[str]) -> dict[tuple[str, str], float]:
        """Estimated round trips in seconds by pair in alphabetical order, of those that are measured yet.

        One request per node, not per pair: the distance of any two follows from their coordinates.
        """
        found = {node: self.coordinate(node) for node in sorted(nodes)}
        known = [(node, where) for node, where in found.items() if where is not None]
        return {
            (one, other): round_trip(here, there)
            for index, (one, here) in enumerate(known)
            for other, there in known[index + 1 :]
        }

    def query(
        self,
        name: str,
        payload: bytes = b"",
        *,
        seconds: float = 1.0,
        expected: Collection[str] = (),
    ) -> dict[str, bytes]:
        """Ask all live nodes, this one included; their answers by node.

        Args:
            name: what is asked; nodes that do not know it do not answer.
            payload: its argument, at most `MOST_PAYLOAD_BYTES`.
            seconds: how long answers are waited for.
            expected: whose answers are waited for; as soon as all are there it returns. Where empty, the
                whole time is waited.

        Raises:
            WorkerError: the agent refuses.
        """
        records: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def received(record: Any) -> bool:
            records.put(record)
            return bool(record["Type"] == "done")

        ends = time.monotonic() + seconds
        request = {"Name": name, "Payload": payload, "Timeout": int(seconds * _NANOSECONDS)}
        self._connection.request("query", request, received)
        answers: dict[str, bytes] = {}
        waiting = set(expected)
        while (left := ends - time.monotonic()) > 0 and (waiting or not expected):
            try:
                record = records.get(timeout=left)
            except queue.Empty:
                break
            if record["Type"] == "done":
                break
            if record["Type"] == "response":
                answers[str(record["From"])] = bytes_of(record["Payload"])
                waiting.discard(str(record["From"]))
        return answers

    def events(self, received: Callable[[Event], None], kinds: str = "*") -> None:
        """Have `received` called with each event from now on.

        It runs in the reading thread and must not ask the agent anything; `respond` it may.

        Args:
            received: what is called.
            kinds: Serf's filter: `*`, or a list such as `member-failed,query:states`.
        """

        def record(raw: Any) -> bool:
            received(read_event(raw))
            return False

        self._connection.request("stream", {"Type": kinds}, record)

    def respond(self, number: int, payload: bytes) -> None:
        """Answer a query that came as an event on this connection; one that is too late is dropped."""
        self._connection.send("respond", {"ID": number, "Payload": payload})

    def join(self, addresses: Iterable[str]) -> int:
        """Have the agent meet others; how many it reached."""
        return int(self._connection.request("join", {"Existing": list(addresses), "Replay": False})["Num"])

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
