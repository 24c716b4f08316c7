"""Each cell of the engine table, through a whole deploy on three real hosts, to a model that learned."""

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

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

STATE = "/var/lib/tailtrain"
# Three nodes can share six heads, and each can have some layers.
LAYERS, WIDTH, CONTEXT = 4, 48, 64
MODEL = {"layers": LAYERS, "width": WIDTH, "heads": 6, "context": CONTEXT}
STEP = 16 * CONTEXT
IN_LAYERS = 4 * LAYERS * 12 * WIDTH * WIDTH
WHOLE = IN_LAYERS + 4 * (256 * WIDTH + CONTEXT * WIDTH + LAYERS * 2 * WIDTH + WIDTH)


class Cells(Trio):
    """Three hosts on which one cell after the other trains."""

    _seed = 17

    def declare(self, strategy: str, protocol: str, *, tokens: int, **engine: Any) -> None:
        """Say what to train next, in a model so small that starting takes longer than training."""
        path = self.folder / "group_data" / "all.py"
        text = re.sub(r"(?m)^# One cell of the table\n(?s:.*)", "", path.read_text())
        self._seed += 1  # another run, also where a test is run once more
        training = {
            "target_tokens": tokens, "round_seconds": 4.0, "batch_size": 16, "learning_rate": 0.01,
            "seed": self._seed,
        }  # fmt: skip
        path.write_text(
            f"{text}# One cell of the table\n"
            f"distribution_strategy = {strategy!r}\ncoordination_protocol = {protocol!r}\n"
            'resource_allocation = "declared_cores"\nload_balancing = "static"\n'
            f"model = {MODEL!r}\ntraining = {training!r}\n"
            f"engine = {dict(checkpoint_steps=20, microbatches=4, **engine)!r}\n"
        )

    def deploy(self, *deploys: str, code: int = 0) -> str:
        """As in other small labs, with time for processes that start on hosts with a part of a core."""
        files = (f"deploys/{name}.py" for name in deploys)
        return self.said(code, "pyinfra", "-y", "inventory.py", *files, timeout=800)

    def status(self, host: str) -> dict[str, Any]:
        """What a host's worker says of the run at hand; empty before it says anything."""
        read = f"import json; print(json.load(open('{CONFIG}'))['run_id'])"
        text = self.on(
            host, f'cat {STATE}/runs/$(python3 -c "{read}" 2>/dev/null)/status.json 2>/dev/null || echo {{}}'
        )
        document: dict[str, Any] = json.loads(text)
        return document

    def report(self) -> dict[str, Any]:
        """The newest report."""
        found = sorted(
            (self.folder / ".tailtrain" / "runs").glob("*/report.json"), key=lambda path: path.stat().st_mtime
        )
        document: dict[str, Any] = json.loads(found[-1].read_text())
        return document

    def until(self, host: str, wanted: Callable[[dict[str, Any]], bool], seconds: float, what: str) -> None:
        """Until this holds of a host's status."""
        ends = time.monotonic() + seconds
        while not wanted(status := self.status(host)):
            assert time.monotonic() < ends, f"{what}: {status}"
            time.sleep(0.3)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    yield from small_lab(lambda folder: Cells(folder, "cells"), tmp_path_factory.mktemp("cells"))


def require_learned(report: dict[str, Any], took_part: int = 3) -> None:
    """A model better than both baselines on every domain, made by these many nodes."""
    for validation in report["validation"].values():
        for losses in validation["domains"].values():
            assert losses["loss"] < min(losses["untrained_loss"], losses["unigram_loss"])
    assert sum(each["in_final_average"] for each in report["manifest"]["contributions"]) >= took_part


@pytest.mark.parametrize("protocol", ["centralized", "decentralized", "eneGossip"])
def test_data_parallel(cells: Cells, protocol: str) -> None:
    # A third of the steps one after another that the other cells make of as many tokens.
    cells.declare("dataParallel", protocol, tokens=480 * STEP)
    cells.deploy("train")
    require_learned(cells.report(), took_part=2)
    assert cells.said(0, "tailtrain", "plan").count("No changes") == 1


@pytest.mark.parametrize("protocol", ["centralized", "eneGossip"])
def test_model_parallel(cells: Cells, protocol: str) -> None:
    cells.declare("modelParallel", protocol, tokens=240 * STEP, allow_wan=True)
    assert "four sums over all nodes a layer" in cells.said(2, "tailtrain", "plan")
    said = cells.deploy("train")
    report = cells.report()
    require_learned(report)
    held = {each["node"]: each["parameter_bytes"] for each in report["manifest"]["contributions"]}
    assert held == dict.fromkeys(HOSTS, WHOLE - IN_LAYERS + IN_LAYERS // 3)
    assert "whole model" in said
    assert cells.said(0, "tailtrain", "plan").count("No changes") == 1


def test_a_pipeline_under_gossip(cells: Cells) -> None:
    cells.declare("pipelineParallel", "eneGossip", tokens=240 * STEP)
    assert "Stage" in cells.said(2, "tailtrain", "plan")
    cells.deploy("train")
    require_learned(cells.report())
    assert cells.said(0, "tailtrain", "plan").count("No changes") == 1


def test_a_pipeline_that_loses_a_stage_mid_run(cells: Cells) -> None:
    cells.declare("pipelineParallel", "centralized", tokens=600 * STEP)
    last = cells.lab.host(HOSTS[2])
    with cells.in_the_background("pyinfra", "-y", "inventory.py", "deploys/train.py") as deploy:
        cells.until(
            HOSTS[2],
            lambda status: status.get("state") == "training" and status["round"] >= 0,
            300,
            "three stages train",
        )
        assert cells.status(HOSTS[0])["cut"].keys() == set(HOSTS)
        last.power_cut()
        done = cells.status(HOSTS[0])["round"]
        cells.until(
            HOSTS[0],
            lambda status: len(status["members"]) == 2 and status["round"] > done,
            200,
            "two nodes go on",
        )
        assert cells.status(HOSTS[0])["cut"].keys() == {HOSTS[0], HOSTS[1]}
        last.boot()
        said = deploy.communicate(timeout=600)[0]
        assert deploy.returncode == 0, said[-5000:]
    report = cells.report()
    # It is back before the end, or learns that the run is finished.
    require_learned(report, took_part=2)
    held = {each["node"]: each["parameter_bytes"] for each in report["manifest"]["contributions"]}
    assert all(0 < held[host] < WHOLE for host in HOSTS[:2])
    assert held[HOSTS[2]] < WHOLE
    judged = {each["name"]: each["measured"] for each in report["guarantees"]}
    assert judged["faultTolerance"].startswith("1 lost (gamma)")
    assert "0 committed tokens lost" in judged["faultTolerance"]
    cells.until(HOSTS[2], lambda status: status.get("state") == "finished", 60, "it knows of the end")
