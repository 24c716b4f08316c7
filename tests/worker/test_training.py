"""Real workers train together on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("protocol", ["decentralized", "centralized"])
def test_a_fleet_trains_to_its_target_and_ends_with_the_same_weights(
    make_fleet: Callable[..., Any], protocol: str
) -> None:
    fleet = make_fleet(2, protocol=protocol, target_tokens=400_000)
    fleet.start()
    assert fleet.wait(90) == [0, 0]
    states = [fleet.status(index) for index in range(2)]
    assert [state["state"] for state in states] == ["finished", "finished"]
    assert states[0]["weights_sha256"] == states[1]["weights_sha256"]
    assert states[0]["total_tokens"] == states[1]["total_tokens"] >= 400_000
    assert sum(state["tokens"] for state in states) == states[0]["total_tokens"]
    last = fleet.progress(0)[-1]
    assert [member["node"] for member in last["group"]] == ["n0", "n1"]
    assert last["group"][0]["loss"] < fleet.progress(0)[0]["group"][0]["loss"]
