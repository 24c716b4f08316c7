"""The clock of rounds: the same for all members of an averaging, and no round comes twice or is left out."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.worker.config import WorkerConfig, load_config
from tailtrain.worker.schedule import Round, following, rounds_until_all
from tests.unit.worker.test_config import GOOD
from tests.unit.worker.test_ledger import contribution

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def gossiping(tmp_path: Path) -> WorkerConfig:
    raw = copy.deepcopy(GOOD)
    raw["coordination"] |= {"protocol": "eneGossip", "all_each": 4, "gossip": "/etc/tailtrain/serf.json"}
    raw["training"] |= {"round_seconds": 10.0, "target_tokens": 10_000}
    return _loaded(tmp_path, raw)


def _loaded(folder: Path, raw: dict[str, Any]) -> WorkerConfig:
    path = folder / "worker.json"
    path.write_text(json.dumps(raw))
    return load_config(path)


GROUP = [
    contribution("a", arrived=1000.0, averaging_seconds=0.5, tokens=50, train_seconds=1.0),
    contribution("b", arrived=1001.0, averaging_seconds=2.0, tokens=50, train_seconds=1.0),
]


def test_the_ends_of_all_rounds_until_the_next_averaging_of_all_are_fixed_in_advance(
    gossiping: WorkerConfig,
) -> None:
    after = following(gossiping, GROUP, 1000)
    assert after == Round(7, 1049.0, (1013.0, 1025.0, 1037.0))
    assert after.pairs == ((4, 1013.0), (5, 1025.0), (6, 1037.0))


def test_all_members_come_to_the_same(gossiping: WorkerConfig) -> None:
    assert following(gossiping, GROUP[::-1], 1000) == following(gossiping, GROUP, 1000)


@pytest.mark.parametrize(("total", "number"), [(7_900, 6), (8_500, 5), (9_500, 4), (20_000, 4)])
def test_the_end_comes_as_soon_as_the_target_is_in_reach(
    gossiping: WorkerConfig, total: int, number: int
) -> None:
    """Together they train 1,000 tokens in a round of ten seconds."""
    assert following(gossiping, GROUP, total).number == number


def test_an_averaging_that_took_for_ever_does_not_stretch_rounds_beyond_twice_their_time(
    gossiping: WorkerConfig,
) -> None:
    slow = [contribution("a", arrived=1000.0, averaging_seconds=900.0)]
    assert following(gossiping, slow, 0).pair_ends[0] == 1020.0


def test_without_gossip_all_average_in_every_round(tmp_path: Path) -> None:
    after = following(_loaded(tmp_path, GOOD), GROUP, 0)
    assert after == Round(4, 1001.0 + 2.0 + 12.0)
    assert after.pairs == ()


@given(st.integers(0, 50), st.floats(-1e6, 1e12), st.floats(0, 1e9))
def test_all_meet_after_one_round_at_least_and_as_many_as_said_at_most(
    all_each: int, left: float, per_round: float
) -> None:
    found = rounds_until_all(all_each, left, per_round)
    assert 1 <= found <= (all_each or 1000)
    if found > 1:
        assert (found - 1) * per_round < left, "the run could have ended before"
