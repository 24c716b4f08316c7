"""eneGossip in a whole deploy on three real hosts: pairs between averagings of all, a lost worker, views."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.conftest import small_lab
from tests.lab.pair import CONFIG
from tests.lab.trio import HOSTS, Trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

STATE = "/var/lib/tailtrain"
LOST = HOSTS[2]


class Gossiping(Trio):
    """Three hosts that train with eneGossip."""

    def declare(self) -> None:
        """All together in every third round, pairs in between."""
        path = self.folder / "group_data" / "all.py"
        text = re.sub(r"(?m)^(coordination_protocol|load_balancing) = .*\n", "", path.read_text())
        path.write_text(
            f'{text}\ncoordination_protocol = "eneGossip"\nload_balancing = "health_weighted"\n'
            "engine = {'all_each': 3}\n"
        )
        self.set("round_seconds", "3.0")

    def status(self, host: str) -> dict[str, Any]:
        """What a host's worker says of itself; empty before it says anything."""
        run = json.loads(self.on(host, f"cat {CONFIG}"))["run_id"]
        text = self.on(host, f"cat {STATE}/runs/{run}/status.json 2>/dev/null || echo '{{}}'")
        document: dict[str, Any] = json.loads(text)
        return document

    def until(self, happened: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, (what, {host: self.status(host) for host in HOSTS})
            time.sleep(0.5)


@pytest.fixture
def hosts(tmp_path: Any) -> Iterator[Gossiping]:
    yield from small_lab(lambda folder: Gossiping(folder, "pairs"), tmp_path)


def _members(line: dict[str, Any]) -> set[str]:
    return {member["node"] for member in line["group"]}


def test_a_run_in_pairs_loses_a_worker_gets_it_back_and_ends_with_equal_views(hosts: Gossiping) -> None:
    hosts.declare()
    hosts.train_for(60)
    hosts.deploy("provision")
    with hosts.in_the_background("pyinfra", "-y", "inventory.py", "deploys/train.py") as deploy:
        hosts.until(lambda: any(not line["all"] for line in hosts.progress(LOST)), 240, "a pair")
        hosts.on(LOST, "systemctl kill --signal=SIGKILL tailtrain-worker; true")
        hosts.until(
            lambda: any(LOST not in _members(line) for line in _all(hosts)), 60, "the others without it"
        )
        hosts.until(lambda: LOST in _members(_all(hosts)[-1]), 120, "it is back")
        said = deploy.communicate(timeout=500)[0]
    assert deploy.returncode == 0, said[-5000:]
    assert "in a pair" in said
    assert re.search(r"coordination +met +all 3 nodes asked all others, and saw the same 3 members", said)
    assert re.search(r"faultTolerance +met +1 lost \(gamma\), 1 regained", said)
    assert len({hosts.status(host)["weights_sha256"] for host in HOSTS}) == 1
    assert "health" in hosts.status(HOSTS[0])
    hosts.said(0, "tailtrain", "plan")


def _all(hosts: Gossiping) -> list[dict[str, Any]]:
    return [line for line in hosts.progress(HOSTS[0]) if line["all"]]
