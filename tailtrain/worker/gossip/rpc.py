"""The wire to the local Serf agent: MessagePack over TCP, many requests and streams on one connection.

Written against Serf 0.8.2 (Debian's package) and its RPC version 1: a request is a header (Command, Seq) and,
for most commands, a body; an answer is a header (Seq, Error) and, for some, a body. A stream answers its
request with a bare header and then sends header and body again and again under the same Seq.

The framing is msgpack's own streaming Unpacker. Of the clients of this protocol for Python, the one that is
newest (serfio 0.3.3) calls itself untested, wants an event loop, and decodes its whole buffer anew with each
read, from tasks that may append to it at once.
"""

from __future__ import annotations

import itertools
import queue
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgpack

from tailtrain.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

_VERSION = 1
_ANSWER_SECONDS = 10.0  # the agent's own limit for spreading a change of tags is 5 s
_READ_BYTES = 1 << 16
_MOST_BYTES = 64 << 20  # thousands of members with full tags; more is no agent
# `join` answers with a body even where it was refused; the others do not.
_WITH_BODY = frozenset({"members", "members-filtered", "join", "get-coordinate", "stats"})


class AgentGoneError(WorkerError):
    """The agent does not answer: it is not there, it went away, or it is no Serf agent."""


class _Pending:
    """A request whose answer is waited for; a stream stays here until the connection closes."""

    def __init__(self, command: str, received: Callable[[Any], bool] | None) -> None:
        self.command = command
        self.received = received
        self.streaming = False
        self.answer: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()


_Awaited = tuple[_Pending, int, str]  # whose body comes next, its number, and what its header called wrong


class Connection:
    """One connection to an agent, for any number of threads.

    Args:
        address: host and port of the agent's RPC listener.
        key: what the agent's `rpc_auth` asks for; None where it asks for nothing.
        closed: called once, in the reading thread, when the connection is over.

    Raises:
        AgentGoneError: there is no agent at that address, or it refuses the key.
    """

    def __init__(
        self,
        address: tuple[str, int],
        key: str | None = None,
        *,
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._where, self._closed_hook = f"{address[0]}:{address[1]}", closed
        self._sequence = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._lock, self._closed = threading.Lock(), False
        try:
            self._socket = socket.create_connection(address, timeout=_ANSWER_SECONDS)
        except OSError as error:
            raise self._gone(str(error)) from error
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = threading.Thread(target=self._read, name="serf-rpc", daemon=True)
        self._reader.start()
        try:
            self.request("handshake", {"Version": _VERSION})
            if key is not None:
                self.request("auth", {"AuthKey": key})
        except WorkerError:
            self.close()
            raise

    def request(
        self,
        command: str,
        body: Mapping[str, Any] | None = None,
        received: Callable[[Any], bool] | None = None,
    ) -> Any:
        """Ask the agent; what it answers, None for commands that are only confirmed.

        Args:
            command: of the RPC protocol.
            body: its arguments.
            received: for commands that start a stream, called with each record, in the reading thread: it
                must not ask the agent anything itself, only `send`. It says whether that was the last one.

        Raises:
            WorkerError: the agent refused, and why.
            AgentGoneError: it does not answer.
        """
        pending = _Pending(command, received)
        sequence = self._write(command, body, pending)
        try:
            answer = pending.answer.get(timeout=_ANSWER_SECONDS)
        except queue.Empty:
            raise self._gone(f"no answer to {command} in {_ANSWER_SECONDS:.0f} s") from None
        finally:
            if not pending.streaming:
                self._pending.pop(sequence, None)
        if answer is None:
            raise self._gone("it closed the connection")
        error, value = answer
        if error:
            raise WorkerError("the Serf agent refuses", field=command, found=error)
        return value

    def send(self, command: str, body: Mapping[str, Any]) -> None:
        """Tell the agent something without waiting; its answer is dropped.

        Raises:
            AgentGoneError: the connection is over.
        """
        self._write(command, body, None)

    def close(self) -> None:
        """End the connection and its streams; may be called twice."""
        with self._lock:
            self._closed = True
        with suppress(OSError):  # the agent closed it first
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout=_ANSWER_SECONDS)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, command: str, body: Mapping[str, Any] | None, pending: _Pending | None) -> int:
        sequence = next(self._sequence)
        message = msgpack.packb({"Command": command, "Seq": sequence})
        if body is not None:
            message += msgpack.packb(body)
        with self._lock:
            if self._closed:
                raise self._gone("the connection is closed")
            if pending is not None:
                self._pending[sequence] = pending
            try:
                self._socket.sendall(message)
            except OSError as error:
                self._pending.pop(sequence, None)
                raise self._gone(str(error)) from error
        return sequence

    def _read(self) -> None:
        """Hand each answer to whom it belongs, until the connection ends."""
        # Serf's strings are bytes of any kind: a payload need not be text.
        unpacker = msgpack.Unpacker(
            raw=False, unicode_errors="surrogateescape", strict_map_key=False, max_buffer_size=_MOST_BYTES
        )
        waiting: _Awaited | None = None
        try:
            while data := self._socket.recv(_READ_BYTES):
                unpacker.feed(data)
                for message in unpacker:
                    waiting = self._take(message, waiting)
        except (OSError, ValueError, KeyError, TypeError, msgpack.exceptions.UnpackException):
            pass  # the agent went away, or what came is not its protocol: both end the connection
        finally:
            self._end()

    def _take(self, message: Any, waiting: _Awaited | None) -> _Awaited | None:
        """One header or body; what is still to come for it."""
        if waiting is not None:
            pending, sequence, error = waiting
            if pending.streaming and pending.received is not None:
                if pending.received(message):
                    self._pending.pop(sequence, None)
            else:
                pending.answer.put((error, message))
            return None
        sequence, error = int(message["Seq"]), str(message["Error"])
        found = self._pending.get(sequence)
        if found is None:  # the answer to what was sent without waiting: none of those has a body
            return None
        if found.streaming or found.command == "join" or (found.command in _WITH_BODY and not error):
            return found, sequence, error
        found.streaming = found.received is not None and not error
        found.answer.put((error, None))
        return None

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            left, self._pending = list(self._pending.values()), {}
        for pending in left:
            pending.answer.put(None)
        if self._closed_hook is not None:
            self._closed_hook()

    def _gone(self, why: str) -> AgentGoneError:
        return AgentGoneError(
            "the local Serf agent does not answer",
            field=self._where,
            found=why,
            fix="Look at `systemctl status tailtrain-serf`",
        )
