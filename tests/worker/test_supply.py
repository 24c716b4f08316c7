"""A node's data: configuration and manifest have to fit, and what is not read is said."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any

import pytest

from tailtrain.errors import WorkerError
from tailtrain.worker.config import load_config
from tailtrain.worker.reading.batches import Wanted
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


def test_chunks_are_fetched_though_a_full_disk_takes_no_status(
    make_fleet: MakeFleet, serve: Callable[[Any, int], None]
) -> None:
    fleet = make_fleet(2)
    serve(fleet, 1)
    lacking = [fleet.configs[1]["data"][0]["ranges"][number][0] for number in range(2)]
    for chunk in lacking:
        (fleet.chunks(0) / chunk).unlink()
    said: list[str] = []

    def full_disk(what: str) -> None:
        said.append(what)
        raise OSError(errno.ENOSPC, "No space left on device")

    supply = Supply(load_config(fleet.write_config(0)), full_disk)
    supply.fetcher.start()
    for chunk in lacking:
        supply.fetcher.want([Wanted(chunk, "n1")])
        ends = time.monotonic() + 20
        while not (fleet.chunks(0) / chunk).exists():
            assert time.monotonic() < ends, said
            time.sleep(0.05)
    supply.fetcher.close()
    assert said
