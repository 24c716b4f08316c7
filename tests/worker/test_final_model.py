"""The final model: aggregated on the primary, judged on records that nobody trained on."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def test_aggregate_and_validate_after_a_run(
    make_fleet: Callable[..., Any], serve: Callable[[Any, int], None]
) -> None:
    fleet = make_fleet(2, target_tokens=500_000)
    fleet.start()
    assert fleet.wait(90) == [0, 0]
    reports = {"nodes": {f"n{index}": fleet.status(index) for index in range(2)}}
    final = fleet.run_dir(0) / "final"

    made = fleet.command(0, "aggregate", json.dumps(reports).encode())
    assert made.returncode == 0, made.stderr
    manifest = json.loads((final / "manifest.json").read_bytes())
    assert [c["node"] for c in manifest["contributions"]] == ["n0", "n1"]
    assert all(c["in_final_average"] for c in manifest["contributions"])
    assert sum(c["share"] for c in manifest["contributions"]) == pytest.approx(1.0)
    assert sum(c["tokens"] for c in manifest["contributions"]) == fleet.status(0)["total_tokens"]
    assert manifest["weights_sha256"] == fleet.status(1)["weights_sha256"]

    before = {path.name: path.read_bytes() for path in final.iterdir()}
    assert fleet.command(0, "aggregate", json.dumps(reports).encode()).returncode == 0
    assert {path.name: path.read_bytes() for path in final.iterdir()} == before

    shutil.copytree(final, fleet.run_dir(1) / "final")
    serve(fleet, 0)  # n1 has no chunk server: n0 cannot get what is n1's
    results = []
    for index in range(2):
        judged = fleet.command(index, "validate")
        assert judged.returncode == 0, judged.stderr
        results.append(json.loads((fleet.run_dir(index) / "validation.json").read_bytes()))
    assert results[0]["domains"] == results[1]["domains"]
    for losses in results[0]["domains"].values():
        assert losses["loss"] < losses["unigram_loss"] < losses["untrained_loss"]
        assert losses["untrained_loss"] == pytest.approx(math.log(256), abs=0.2)
        assert 0 < losses["bytes"] <= 2000

    n0, n1 = (result["availability"] for result in results)
    own = [
        {chunk for domain in config["data"] for chunk, _, _ in domain["ranges"]} for config in fleet.configs
    ]
    assert n1["source"] == "n0"
    assert n1["bytes"] == (fleet.chunks(0) / n1["chunk"]).stat().st_size
    assert n1["chunk"] not in own[1]
    assert (n1["error"], n0["source"], n0["bytes"]) == (None, None, 0)
    assert n0["chunk"] in own[1]
    assert "no source gave this chunk" in n0["error"]
    assert not list(fleet.run_dir(0).glob("availability-*"))

    # A run that is finished ends at once when it is started again.
    fleet.start(0)
    assert fleet.wait(20, 0) == [0]
    assert fleet.status(0)["state"] == "finished"
    assert fleet.status(0)["starts"] == 2

    # A damaged model is not judged.
    content = bytearray((final / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (final / "model.safetensors").write_bytes(content)
    refused = fleet.command(0, "validate")
    assert refused.returncode == 1
    assert b"not the one that its manifest names" in refused.stderr


def test_a_primary_that_was_away_at_the_end_takes_the_finished_model_from_those_who_wait_for_it(
    make_fleet: Callable[..., Any],
) -> None:
    fleet = make_fleet(3, quorum=2, target_tokens=1_500_000)
    fleet.start()
    fleet.until(lambda: all(len(fleet.progress(index)) >= 1 for index in range(3)), 60, "a round of three")
    fleet.kill(0)
    said = "waits for the primary n0 to take the finished model"
    for index in (1, 2):
        fleet.until(lambda index=index: fleet.status(index)["state"] == "finished", 240, "the others finish")
        fleet.until(lambda index=index: fleet.status(index)["message"] == said, 30, "they wait for it")
    assert fleet.stop(2) == 0, "they end when they are told to"
    assert fleet.status(2)["state"] == "finished"
    fleet.kill(1)

    # Started again, they wait as before.
    fleet.start(1)
    fleet.until(lambda: fleet.status(1)["starts"] == 2 and fleet.status(1)["message"] == said, 60, "n1 waits")
    fleet.start(0)
    assert fleet.wait(60, 0, 1) == [0, 0]
    primary, other = fleet.status(0), fleet.status(1)
    assert (primary["state"], other["state"], other["message"]) == ("finished", "finished", "")
    assert primary["weights_sha256"] == other["weights_sha256"]
    assert primary["total_tokens"] == other["total_tokens"] >= 1_500_000
    made = fleet.command(0, "aggregate", json.dumps({"nodes": {"n0": primary, "n1": other}}).encode())
    assert made.returncode == 0, made.stderr

    # Where the final model has been delivered nobody waits.
    shutil.copytree(fleet.run_dir(0) / "final", fleet.run_dir(2) / "final")
    fleet.start(2)
    assert fleet.wait(20, 2) == [0]


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        (b"nonsense", b"reports cannot be read"),
        (b'{"nodes": {"stranger": null}}', b"stranger: a report is of a node that is not of this run"),
        (b'{"nodes": {"n1": {"node": "n1", "run_id": "ffff"}}}', b"n1: a report is of another run"),
        (b'{"nodes": {"n0": null, "n1": null}}', b"the run has not finished on this node"),
    ],
)
def test_aggregate_refuses_reports_that_do_not_fit(
    make_fleet: Callable[..., Any], reports: bytes, message: bytes
) -> None:
    fleet = make_fleet(2)
    refused = fleet.command(0, "aggregate", reports)
    assert refused.returncode == 1
    assert message in refused.stderr


def test_a_node_that_has_all_data_has_nothing_to_fetch(make_fleet: Callable[..., Any]) -> None:
    fleet = make_fleet(1, quorum=1, target_tokens=20_000)
    fleet.start()
    assert fleet.wait(60) == [0]
    assert fleet.command(0, "aggregate", b'{"nodes": {"n0": null}}').returncode == 0
    assert fleet.command(0, "validate").returncode == 0
    found = json.loads((fleet.run_dir(0) / "validation.json").read_bytes())["availability"]
    assert found == {"chunk": None, "source": None, "bytes": 0, "seconds": 0.0, "error": None}
