"""Asking the daemon: what its command's ends mean, and how often it is asked."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailtrain.errors import DaemonError
from tailtrain.tailnet import daemon
from tailtrain.tailnet.daemon import NetmapCache, read_status

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNING = Path(__file__).with_name("data") / "running.json"


@pytest.fixture
def tailscale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tailscale command is looked for; nothing is there yet, and no daemon listens."""
    monkeypatch.setattr(daemon, "SOCKET", str(tmp_path / "tailscaled.sock"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(daemon.STATUS_FILE_VARIABLE, raising=False)
    return tmp_path / "tailscale"


def write(command: Path, script: str) -> None:
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def test_tailscale_is_not_installed(tailscale: Path) -> None:
    assert not tailscale.exists()
    with pytest.raises(DaemonError, match=r"not installed.*then run: sudo tailscale up$"):
        read_status()


def test_the_daemon_is_not_running(tailscale: Path) -> None:
    """The message is how tailscale 1.102.5 begins without its daemon."""
    said = "failed to connect to local tailscaled; it doesn't appear to be running"
    write(tailscale, f'echo "{said}" >&2; exit 1')
    with pytest.raises(DaemonError) as caught:
        read_status()
    assert said in str(caught.value)
    assert "Run: sudo systemctl enable --now tailscaled" in str(caught.value)


def test_the_daemon_is_stuck(tailscale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "STATUS_TIMEOUT_SECONDS", 0.2)
    write(tailscale, "exec /bin/sleep 20")
    with pytest.raises(DaemonError, match=r"did not answer within 0\.2 s"):
        read_status()


@contextmanager
def listening(place: str, answer: bytes, *, seconds: float = 0.0) -> Iterator[list[bytes]]:
    """A daemon that gives this answer to one request, after some time; what it was asked."""
    requests: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            requests.append(connection.recv(1 << 16))
            time.sleep(seconds)
            with suppress(OSError):
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield requests
        server.join()


def test_the_daemon_is_asked_without_starting_a_command(tailscale: Path) -> None:
    assert not tailscale.exists()
    head = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
    with listening(daemon.SOCKET, head + RUNNING.read_bytes()) as requests:
        assert read_status() == RUNNING.read_bytes()
    assert requests[0].startswith(b"GET /localapi/v0/status HTTP/1.0\r\nHost: local-tailscaled.sock\r\n")


@pytest.mark.parametrize("answer", [b"HTTP/1.0 403 Forbidden\r\n\r\nno", b"garbage", b""])
def test_a_daemon_that_does_not_answer_us_is_asked_by_its_own_command(tailscale: Path, answer: bytes) -> None:
    write(tailscale, 'echo \'{"BackendState": "Running"}\'')
    with listening(daemon.SOCKET, answer):
        assert read_status() == b'{"BackendState": "Running"}\n'


def test_a_daemon_that_is_stuck_is_not_waited_for_twice(
    tailscale: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "STATUS_TIMEOUT_SECONDS", 0.2)
    write(tailscale, "exec /bin/sleep 20")
    with (
        listening(daemon.SOCKET, b"", seconds=0.6),
        pytest.raises(DaemonError, match=r"did not answer within 0\.2 s"),
    ):
        read_status()


def test_a_file_stands_for_the_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(daemon.STATUS_FILE_VARIABLE, str(RUNNING))
    assert read_status() == RUNNING.read_bytes()
    monkeypatch.setenv(daemon.STATUS_FILE_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(DaemonError, match=daemon.STATUS_FILE_VARIABLE):
        read_status()


def test_the_daemon_is_asked_once_until_a_newer_answer_is_wanted() -> None:
    asked = []

    def source() -> bytes:
        asked.append(time.monotonic())
        return RUNNING.read_bytes()

    cache = NetmapCache(source)
    for _ in range(3):
        cache.get()
    cache.get(max_age=60)
    assert len(asked) == 1
    cache.get(max_age=0)
    assert len(asked) == 2
    cache.forget()
    cache.get()
    assert len(asked) == 3


def test_a_failure_is_not_kept() -> None:
    answers = iter([b'{"BackendState": "Starting"}', RUNNING.read_bytes()])
    cache = NetmapCache(lambda: next(answers))
    with pytest.raises(DaemonError):
        cache.get()
    assert cache.get().find("qfox").address == "100.64.0.2"


def test_address_and_path_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(daemon.STATUS_FILE_VARIABLE, str(RUNNING))
    daemon.forget_netmap()
    assert daemon.address_of("qfox") == "100.64.0.2"
    assert daemon.path_of("qfox") == "direct 10.99.0.11:41641"
    daemon.forget_netmap()
