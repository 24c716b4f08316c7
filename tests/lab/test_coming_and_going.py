"""eneGossip on three real hosts: who is lost and returns, who becomes slow, too few."""

from __future__ import annotations

import json
import re
import time
from statistics import median
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

    def declare(self, all_each: int) -> None:
        """All together in every so many rounds, pairs in between."""
        path = self.folder / "group_data" / "all.py"
        text = re.sub(r"(?m)^(coordination_protocol|load_balancing|engine) = .*\n", "", path.read_text())
        path.write_text(
            f'{text}\ncoordination_protocol = "eneGossip"\nload_balancing = "health_weighted"\n'
            f"engine = {{'all_each': {all_each}}}\n"
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
            if time.monotonic() > deadline:
                said = {host: self.status(host) for host in HOSTS if self.lab.host(host).running}
                pytest.fail(f"not within {seconds} s: {what}; {said}")
            time.sleep(0.5)

    @property
    def together(self) -> list[dict[str, Any]]:
        """What the primary wrote of the averagings of all."""
        return self.together_on(HOSTS[0])

    def together_on(self, host: str) -> list[dict[str, Any]]:
        """What a host wrote of the averagings of all."""
        return [line for line in self.progress(host) if line["all"]]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gossiping]:
    yield from small_lab(lambda folder: Gossiping(folder, "going"), tmp_path_factory.mktemp("going"))


def _members(line: dict[str, Any]) -> set[str]:
    return {member["node"] for member in line["group"]}


def test_a_run_in_pairs_loses_a_worker_gets_it_back_and_ends_with_equal_views(hosts: Gossiping) -> None:
    hosts.declare(all_each=3)
    hosts.train_for(60)
    hosts.deploy("provision")
    with hosts.in_the_background("pyinfra", "-y", "inventory.py", "deploys/train.py") as deploy:
        hosts.until(lambda: any(not line["all"] for line in hosts.progress(LOST)), 240, "a pair")
        hosts.on(LOST, "systemctl kill --signal=SIGKILL tailtrain-worker; true")
        hosts.until(
            lambda: any(LOST not in _members(line) for line in hosts.together), 60, "the others without it"
        )
        hosts.until(lambda: LOST in _members(hosts.together[-1]), 120, "it is back")
        said = deploy.communicate(timeout=500)[0]
    assert deploy.returncode == 0, said[-5000:]
    assert "in a pair" in said
    assert re.search(r"coordination +met +all 3 nodes asked all others, and saw the same 3 members", said)
    assert re.search(r"faultTolerance +met +1 lost \(gamma\), 1 regained", said)
    assert len({hosts.status(host)["weights_sha256"] for host in HOSTS}) == 1
    assert "health" in hosts.status(HOSTS[0])
    hosts.said(0, "tailtrain", "plan")


def _share(line: dict[str, Any]) -> float:
    """The part of the next round's work that the host gets which is slowed down."""
    return next((member["work_share"] for member in line["group"] if member["node"] == LOST), 0.0)


def test_a_host_that_slows_down_to_a_tenth_gets_less_within_two_rounds_and_more_again(
    hosts: Gossiping,
) -> None:
    hosts.declare(all_each=1)
    hosts.set("round_seconds", "6.0")
    hosts.set("target_tokens", "1_000_000_000")
    hosts.deploy("provision", "distribute")
    host = hosts.lab.host(LOST)
    quota = host.cpu_quota
    assert quota is not None
    with hosts.in_the_background("pyinfra", "-y", "inventory.py", "deploys/train.py"):
        hosts.until(lambda: len(hosts.together) >= 5, 200, "some rounds at full speed")
    usual = median(_share(line) for line in hosts.together[2:])
    host.set_cpu_quota(quota / 10)
    cut = hosts.together[-1]["round"]
    # The round in which it happens is partly one at full speed.
    hosts.until(lambda: hosts.together[-1]["round"] >= cut + 3, 200, "two whole rounds at a tenth")
    host.set_cpu_quota(quota)
    back = hosts.together[-1]["round"]
    hosts.until(lambda: hosts.together[-1]["round"] >= back + 3, 200, "two whole rounds at full speed")
    shares = {line["round"]: _share(line) for line in hosts.together}
    hosts.said(0, "tailtrain", "stop")
    slow = shares[cut + 3]
    assert slow < 0.5 * usual, (usual, cut, back, shares)
    assert shares[back + 3] > (usual + slow) / 2, (usual, cut, back, shares)


def test_without_the_primary_the_others_go_on_and_below_two_thirds_it_waits(hosts: Gossiping) -> None:
    primary, *others = HOSTS
    hosts.declare(all_each=2)
    hosts.set("round_seconds", "3.0")
    hosts.set("target_tokens", "1_000_000_000")
    hosts.deploy("provision", "distribute")
    with hosts.in_the_background("pyinfra", "-y", "inventory.py", "deploys/train.py"):
        hosts.until(lambda: len(hosts.together) > 1, 200, "all average")
    hosts.lab.host(primary).power_cut()
    seen = len(hosts.together_on(others[0]))
    hosts.until(
        lambda: (
            all(primary not in _members(line) for line in hosts.together_on(others[0])[seen + 1 :][:2])
            and len(hosts.together_on(others[0])) > seen + 2
        ),
        90,
        "the others without the primary",
    )
    hosts.lab.host(primary).boot()
    hosts.until(lambda: primary in _members(hosts.together_on(others[0])[-1]), 120, "the primary is back")

    for host in others:
        hosts.lab.host(host).power_cut()
    hosts.until(lambda: hosts.status(primary)["state"] == "paused", 60, "one of three waits")
    hosts.until(lambda: ", ".join(others) in hosts.status(primary)["message"], 30, "and says for whom")
    paused = hosts.together[-1]["round"]
    for host in others:
        hosts.lab.host(host).boot()
    hosts.until(lambda: hosts.together[-1]["round"] > paused, 120, "it goes on")
    hosts.until(lambda: _members(hosts.together[-1]) == set(HOSTS), 60, "with all")
    hosts.said(0, "tailtrain", "stop")
