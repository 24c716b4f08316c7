"""Asking the daemon: what its command's ends mean, and how often it is asked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tailtrain.errors import DaemonError
from tailtrain.tailnet import daemon
from tailtrain.tailnet.daemon import NetmapCache, read_status

RUNNING = Path(__file__).with_name("data") / "running.json"


@pytest.fixture
def tailscale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tailscale command is looked for; nothing is there yet."""
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
