"""The fleet's gossip key: kept here, taken from a host, or made."""

from __future__ import annotations

import base64
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.errors import FleetError
from tailtrain.fleet import remote
from tailtrain.fleet.gossip_key import fleet_key
from tailtrain.planning import layout
from tests.plans.situations import NAMES, PRIMARY, Situation

if TYPE_CHECKING:
    from pathlib import Path

KEY, OTHER = bytes(range(32)), bytes(range(32, 64))
JUDGE = "judge"


class Named:
    """As much of a host as is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name


class Fleet:
    """Hosts with keyrings, of which none but those may be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **keyrings: str) -> None:
        self.situation = Situation().with_settings(coordination_protocol="eneGossip")
        self.asked: list[str] = []
        for name in keyrings:
            self.situation.on(name, secrets={layout.SERF_KEYRING: "a hash 0600 tailtrain:tailtrain"})

        def run(host: Any, command: Any) -> remote.Output:
            assert command[-2:] == ["cat", layout.SERF_KEYRING]
            self.asked.append(host.name)
            return remote.Output(ok=True, stdout=keyrings[host.name], stderr="")

        monkeypatch.setattr(remote, "run", run)

    def key(self, work_dir: Path) -> bytes:
        hosts: Any = [Named(name) for name in reversed(NAMES)]
        return fleet_key(work_dir, self.situation.declared(), hosts, self.situation.observed)


def ring(key: bytes) -> str:
    return json.dumps([base64.b64encode(key).decode()])


def test_a_key_is_made_once_and_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        key = Fleet(monkeypatch).key(tmp_path / "work")
    finally:
        os.umask(before)
    assert len(key) == 32
    assert Fleet(monkeypatch).key(tmp_path / "work") == key
    assert Fleet(monkeypatch).key(tmp_path / "elsewhere") != key
    [file] = (tmp_path / "work" / "keys").iterdir()
    assert file.read_bytes() == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_primary_s_key_comes_before_others_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(monkeypatch, **{PRIMARY: ring(KEY), JUDGE: ring(OTHER)})
    assert fleet.key(tmp_path) == KEY
    assert fleet.key(tmp_path) == KEY
    assert fleet.asked == [PRIMARY]


def test_where_the_primary_is_away_another_host_s_key_is_the_fleet_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(monkeypatch, judge=ring(OTHER))
    fleet.situation.unreachable(PRIMARY, "no answer")
    assert fleet.key(tmp_path) == OTHER


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "[3]", '["!"]', ring(b"short"), json.dumps([ring(KEY), ring(OTHER)]), "null"]
)
def test_what_is_no_keyring_gives_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    assert Fleet(monkeypatch, **{PRIMARY: content, JUDGE: ring(OTHER)}).key(tmp_path) == OTHER


def test_a_kept_key_that_is_damaged_is_named_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys" / "gossip.key"
    path.parent.mkdir()
    path.write_bytes(b"half")
    with pytest.raises(FleetError, match="found 4 bytes, expected 32 bytes") as caught:
        Fleet(monkeypatch, **{PRIMARY: ring(KEY)}).key(tmp_path)
    assert caught.value.field == str(path)
    assert path.read_bytes() == b"half"


def test_a_folder_that_cannot_keep_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("no folder")
    with pytest.raises(FleetError, match=r"/keys/gossip\.key: the fleet.s gossip key cannot be read"):
        Fleet(monkeypatch).key(tmp_path)


def test_a_fleet_without_gossip_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    fleet.situation.with_settings(coordination_protocol="decentralized")
    assert fleet.key(tmp_path) == b""
    assert list(tmp_path.iterdir()) == []


def test_of_two_who_make_one_at_once_the_first_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(monkeypatch)
    path = tmp_path / "keys" / "gossip.key"
    link = os.link

    def late(source: Any, target: Any) -> None:
        path.write_bytes(KEY)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert fleet.key(tmp_path) == KEY
    assert [each.name for each in path.parent.iterdir()] == ["gossip.key"]
