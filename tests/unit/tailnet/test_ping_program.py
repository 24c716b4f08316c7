"""What `tailscale ping` says of a path, in its own words."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tailtrain.tailnet import ping_program
from tailtrain.tailnet.ping_program import path_in, round_trip_in

if TYPE_CHECKING:
    from pathlib import Path

DIRECT = "pong from beta (100.64.0.3) via 192.168.77.3:41641 in 1ms\n"
SIX = "pong from beta (100.64.0.3) via [2001:db8::3]:41641 in 2ms\n"
DERP = "pong from beta (100.64.0.3) via DERP(lab) in 3ms\n"
PEER = "pong from beta (100.64.0.3) via peer-relay(1.2.3.4:5:vni:1) in 12ms\n"


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (DIRECT, "direct"),
        (SIX, "direct"),
        (DERP, "relayed"),
        (PEER, "relayed"),
        (DERP + DERP + DIRECT, "direct"),
        (DERP * 4 + "direct connection not established\n", "relayed"),
        ("ping timed out\n" + DERP, "relayed"),
        ('ping "100.64.0.3" timed out\n' * 4 + "no reply\n", ""),
        ("no matching peer\n", ""),
        ("", ""),
    ],
)
def test_the_last_answer_tells_the_path(said: str, path: str) -> None:
    assert path_in(said) == path


TAILSCALE = """#!/bin/sh
for address; do :; done
case $address in
    100.64.0.3) echo "pong from beta ($address) via 192.168.77.3:41641 in 1ms" ;;
    100.64.0.4) echo "pong from gamma ($address) via DERP(lab) in 3ms"; echo "$@" >> "$0.asked"; exit 1 ;;
    100.64.0.5) exec sleep 30 ;;
    *) echo "no matching peer" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def tailscale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command of that name that answers as Tailscale's does."""
    command = tmp_path / "tailscale"
    command.write_text(TAILSCALE)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return command


def answer(
    request: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, object]:
    content = io.BytesIO((json.dumps(request) + "\n").encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    assert ping_program.main() == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_each_host_is_asked_and_one_that_does_not_answer_has_no_path(
    tailscale: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = {"beta": "100.64.0.3", "gamma": "100.64.0.4", "delta": "100.64.0.5", "nobody": "100.64.0.6"}
    found = answer({"addresses": addresses, "seconds": 1.0}, monkeypatch, capsys)
    assert found == {"paths": {"beta": "direct", "gamma": "relayed"}, "problem": ""}
    asked = tailscale.with_name("tailscale.asked").read_text()
    assert asked == "ping --until-direct --timeout=1s --c=4 100.64.0.4\n"


def test_a_host_without_the_command_reaches_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = answer({"addresses": {"beta": "100.64.0.3"}, "seconds": 1.0}, monkeypatch, capsys)
    assert found == {"paths": {}, "problem": "tailscale: No such file or directory"}


def test_round_trips_are_the_shortest_of_several(
    tailscale: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = {"beta": "100.64.0.3", "gamma": "100.64.0.4", "nobody": "100.64.0.6"}
    request = {"what": "round_trips", "addresses": addresses, "seconds": 1.0}
    found = answer(request, monkeypatch, capsys)
    assert found == {"round_trips": {"beta": [0.001, True], "gamma": [0.003, False]}, "problem": ""}
    asked = tailscale.with_name("tailscale.asked").read_text()
    assert asked == "ping --until-direct=false --timeout=1s --c=4 100.64.0.4\n"


@pytest.mark.parametrize(
    ("said", "seconds"), [(DERP + DIRECT + PEER, 0.001), (DIRECT.replace("1ms", "1.2s"), 1.2)]
)
def test_the_shortest_answer_counts(said: str, seconds: float) -> None:
    assert round_trip_in(said) == pytest.approx(seconds)
