"""One slow link among three hosts: what the optimizer makes of it, against shares by cores, as measured.

The first run measures: shares by cores, averaged by all, uncompressed, in equal parts. The second has the
optimizer, which knows what the hosts measured in the first. Rounds train for the same seconds in both.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.planning import layout
from tailtrain.planning.topology.measured_rounds import measured_rounds
from tests.lab.conftest import small_lab
from tests.lab.trio import HOSTS, Trio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailtrain.planning.topology.measured_rounds import MeasuredRounds

pytestmark = pytest.mark.lab

ROUNDS = 3
MBIT = 1.5
SLOW = HOSTS[2]
DEPLOYS = tuple(f"deploys/{name}.py" for name in ("provision", "distribute", "train_workers"))


class Unequal(Trio):
    """Three hosts, one of them behind a narrow link, that train for as long as they are let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "unequal")
        self.set("target_tokens", "1_000_000_000")
        self.set("round_seconds", "6.0")

    def allocate(self, method: str) -> dict[str, Any]:
        """Have the work shared out by this method, in a run of its own; its plan."""
        path = self.folder / "group_data" / "all.py"
        text = re.sub(r"(?m)^(resource_allocation) = .*$", rf'\1 = "{method}"', path.read_text())
        path.write_text(re.sub(r'("seed": )(\d+)', lambda found: f"{found[1]}{int(found[2]) + 1}", text))
        return self.plan()

    def train(self, run: str) -> MeasuredRounds:
        """What some rounds of a run take; its workers are stopped then."""

        def enough(_: list[dict[str, Any]]) -> bool:
            # Asked for by name: until this run is deployed, what is there is of the one before.
            rounds = self.rounds(run)
            return len(rounds) > ROUNDS and len(rounds[-1]["group"]) == len(HOSTS)

        with self.in_the_background("pyinfra", "-y", "inventory.py", *DEPLOYS):
            self.wait_for(enough)
        progress = self.rounds(run)
        self.deploy("stop")
        found = measured_rounds(progress)
        assert found is not None
        return found

    def rounds(self, run: str) -> list[dict[str, Any]]:
        """What the primary wrote of a run's rounds so far."""
        text = self.on(HOSTS[0], f"cat {layout.run(run)}/progress.jsonl 2>/dev/null; true")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unequal]:
    yield from small_lab(Unequal, tmp_path_factory.mktemp("unequal"))


def test_with_a_slow_link_the_optimizer_trains_more_than_shares_by_cores(unequal: Unequal) -> None:
    unequal.said(0, "pyinfra", "-y", "inventory.py", *DEPLOYS[:2])
    unequal.lab.host(SLOW).link.narrow(MBIT)
    by_cores = unequal.train(unequal.allocate("declared_cores")["run"]["id"])
    plan = unequal.allocate("swarm_topology_optimizer")
    predicted = plan["topology"]
    assert predicted["chosen"]
    assert predicted["guessed"] == []
    assert predicted["compression"] != "none"
    chosen = unequal.train(plan["run"]["id"])
    print(f"by cores: {by_cores}\nchosen:   {chosen}\npredicted: {predicted['words']}")
    # Against what the same hosts could do at that time: the machine that they share has other work too.
    assert chosen.utilisation > by_cores.utilisation
    assert chosen.seconds < by_cores.seconds
    # What the hosts measured meanwhile changes nothing: the run keeps its topology.
    assert unequal.plan()["topology"] == predicted
