"""Identities: what the control machine makes is what libp2p reads."""

from __future__ import annotations

import pytest

from tailtrain.errors import FleetError
from tailtrain.fleet.identity import new_identity, peer_id_of


def test_the_peer_id_follows_from_the_file() -> None:
    key, peer_id = new_identity()
    assert peer_id_of(key) == peer_id
    assert peer_id.startswith("Qm")
    assert len(peer_id) == 46


def test_two_identities_differ() -> None:
    assert new_identity()[1] != new_identity()[1]


@pytest.mark.parametrize("damage", [b"", b"\x08\x00\x12", b"\x08\x00\x12\x05abc", b"-----BEGIN RSA-----"])
def test_other_bytes_are_refused_by_name(damage: bytes) -> None:
    with pytest.raises(FleetError, match=r"identity\.key: this is not a peer identity"):
        peer_id_of(damage)


def test_a_truncated_key_is_refused() -> None:
    key, _ = new_identity()
    with pytest.raises(FleetError):
        peer_id_of(key[:-1])
