"""The wire to the agent, against peers that are no agent or that break off."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

msgpack = pytest.importorskip("msgpack", reason="needs the worker environment")

from tailtrain.errors import WorkerError  # noqa: E402
from tailtrain.worker.gossip import rpc  # noqa: E402
from tailtrain.worker.gossip.rpc import AgentGoneError, Connection  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A listener that lets `serve` talk to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                serve(client)

        thread = threading.Thread(target=run)
        thread.start()
        yield server.getsockname()
        thread.join()


def answering(*answers: bytes, byte_by_byte: bool = False) -> Callable[[socket.socket], None]:
    """Answer each message that comes with the next of these, then hang up."""

    def serve(client: socket.socket) -> None:
        for answer in answers:
            if not client.recv(65536):
                return
            for part in [answer[i : i + 1] for i in range(len(answer))] if byte_by_byte else [answer]:
                client.sendall(part)

    return serve


def packed(*values: Any) -> bytes:
    return b"".join(msgpack.packb(value) for value in values)


def header(sequence: int, error: str = "") -> dict[str, Any]:
    return {"Seq": sequence, "Error": error}


@pytest.mark.parametrize("noise", [b"HTTP/1.1 400 Bad Request\r\n", b"\xc1", packed([1]), packed({"Seq": 1})])
def test_what_is_no_agent_is_told_at_once(noise: bytes) -> None:
    with listening(answering(noise)) as address, pytest.raises(AgentGoneError):
        Connection(address)


def test_an_answer_may_come_in_pieces_or_with_others() -> None:
    answers = [packed(header(1)), packed(header(9), header(2), {"Members": ["a"]})]
    with listening(answering(*answers, byte_by_byte=True)) as address, Connection(address) as agent:
        assert agent.request("members") == {"Members": ["a"]}


def test_a_stream_goes_on_beside_requests_until_it_says_that_it_is_done() -> None:
    got: list[Any] = []
    answers = [
        packed(header(1)),
        packed(header(2)),
        packed(header(2), "one", header(3), {"x": "y"}, header(2), "two", header(2)),
    ]
    done = threading.Event()

    def received(record: Any) -> bool:
        got.append(record)
        if record == "two":
            done.set()
        return done.is_set()

    with listening(answering(*answers)) as address, Connection(address) as agent:
        assert agent.request("query", {"Name": "n"}, received) is None
        assert agent.request("stats") == {"x": "y"}
        assert done.wait(5)
    assert got == ["one", "two"]


def test_who_waits_is_told_when_the_agent_goes_away() -> None:
    ended = threading.Event()
    with listening(answering(packed(header(1)), b"")) as address:
        agent = Connection(address, closed=ended.set)
        with pytest.raises(AgentGoneError, match="closed the connection"):
            agent.request("members")
        assert ended.wait(5)
        with pytest.raises(AgentGoneError):
            agent.request("members")
        agent.close()
        agent.close()


def test_an_agent_that_says_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_ANSWER_SECONDS", 0.3)
    hold = threading.Event()

    def serve(_: socket.socket) -> None:
        hold.wait(5)

    with listening(serve) as address:
        with pytest.raises(AgentGoneError, match="no answer to handshake"):
            Connection(address)
        hold.set()


def test_what_is_refused_is_told_with_the_agents_words() -> None:
    with (
        listening(answering(packed(header(1)), packed(header(2, "Unsupported command")))) as address,
        Connection(address) as agent,
        pytest.raises(WorkerError, match="Unsupported command"),
    ):
        agent.request("members")
