"""A node's data: configuration and manifest have to fit, and what is not read is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailtrain.errors import WorkerError
from tailtrain.worker.config import load_config
from tailtrain.worker.reading.supply import Supply, load_shards

MakeFleet = Callable[..., Any]


@pytest.mark.parametrize("span", [[0, 0, 0, 21], [0, 0, 99, 1]])
def test_a_share_beyond_the_data_set_is_named(make_fleet: MakeFleet, span: list[int]) -> None:
    fleet = make_fleet(2)
    fleet.configs[0]["data"][0]["others"]["n1"] = [span]
    with pytest.raises(WorkerError, match=r"n1: natural: a share goes beyond the data set"):
        load_shards(load_config(fleet.write_config(0)))


def test_a_node_says_why_it_reads_nothing(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(3)
    supply = Supply(load_config(fleet.write_config(0)))
    supply.read_on({}, {})
    assert supply.idle == ""
    supply.read_on({}, {"n1": 5.0, "n2": 5.0})
    assert supply.idle == "reads nothing: what it owns is with the others until the next round"
    assert supply.stream.empty
    supply.read_on({}, {"n0": 0.0, "n1": 5.0})
    assert supply.idle == ""
