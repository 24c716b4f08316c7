"""The report and the gate after validation."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from tailtrain.errors import GateError
from tailtrain.fleet.report import render_report, require_learned
from tailtrain.fleet.status import render_status
from tailtrain.fleet.watch import round_line

LOSSES = {"loss": 2.1, "untrained_loss": 5.6, "unigram_loss": 3.1, "records": 9, "bytes": 900}
REPORT: dict[str, Any] = {
    "run_id": "1087d07cb500fc76",
    "plan_id": "a" * 12,
    "manifest": {
        "sha256": "f" * 64,
        "parameters": 1_000_000,
        "data": {"natural": "0" * 64, "coding": "1" * 64},
        "contributions": [
            {
                "node": "qfox",
                "tokens": 9000,
                "share": 0.9,
                "records": 80,
                "rounds": 3,
                "in_final_average": True,
            },
            {
                "node": "judge",
                "tokens": 1000,
                "share": 0.1,
                "records": 9,
                "rounds": 2,
                "in_final_average": False,
            },
        ],
    },
    "rounds": [{}, {}, {}],
    "validation": {
        name: {"model_sha256": "f" * 64, "domains": {"natural": dict(LOSSES), "coding": dict(LOSSES)}}
        for name in ("qfox", "judge")
    },
    "guarantees": [{"name": "networkUtilization", "verdict": "not met", "measured": "1 of 2"}],
    "emulated": [],
}


def changed(node: str, domain: str, **losses: float) -> dict[str, Any]:
    report = copy.deepcopy(REPORT)
    report["validation"][node]["domains"][domain].update(losses)
    return report


def test_a_model_that_beats_both_baselines_everywhere_passes() -> None:
    require_learned(REPORT)


@pytest.mark.parametrize("node", ["qfox", "judge"])
@pytest.mark.parametrize("domain", ["natural", "coding"])
@pytest.mark.parametrize(
    ("loss", "baseline"), [(3.1, "unigram_loss"), (6.0, "untrained_loss"), (math.nan, "untrained_loss")]
)
def test_one_domain_on_one_node_no_better_than_a_baseline_stops_it(
    node: str, domain: str, loss: float, baseline: str
) -> None:
    with pytest.raises(GateError, match=f"no better than its baseline on {domain}") as caught:
        require_learned(changed(node, domain, loss=loss))
    assert (caught.value.host, caught.value.field) == (node, baseline)


def test_another_model_does_not_count() -> None:
    report = copy.deepcopy(REPORT)
    report["validation"]["judge"]["model_sha256"] = "e" * 64
    with pytest.raises(GateError, match="judge: validated another model"):
        require_learned(report)


def test_a_domain_that_was_left_out_does_not_pass() -> None:
    report = copy.deepcopy(REPORT)
    del report["validation"]["judge"]["domains"]["coding"]
    with pytest.raises(
        GateError, match=r"judge: did not validate every domain \(found natural, expected coding, nat"
    ):
        require_learned(report)
    report["validation"]["judge"]["domains"] = {}
    with pytest.raises(GateError, match="found none"):
        require_learned(report)


def test_the_report_as_text() -> None:
    assert render_report(REPORT).splitlines() == [
        "",
        "Run 1087d07cb500fc76: 1,000,000 parameters, 3 rounds",
        "",
        "Node   tokens  share  records  rounds  in the final average",
        "qfox    9,000  90.0%       80       3  yes",
        "judge   1,000  10.0%        9       2  no",
        "",
        "Held-out loss, nats per byte  model  untrained  unigram  validated on",
        "natural                       2.100      5.600    3.100  2 nodes, all equal",
        "coding                        2.100      5.600    3.100  2 nodes, all equal",
        "",
        "Guarantee           verdict  measured",
        "networkUtilization  not met  1 of 2",
    ]


def test_lab_hosts_and_differing_losses_are_said() -> None:
    report = changed("judge", "natural", loss=2.2) | {"emulated": ["judge"]}
    text = render_report(report)
    assert "2 nodes, 1e-01 apart" in text
    assert text.endswith("1 of these hosts are lab hosts: their hardware is emulated.\n")


def test_status_shows_each_node_and_why_it_waits() -> None:
    text = render_status(
        {
            "qfox": {
                "unit": "active",
                "state": "training",
                "round": 3,
                "tokens": 12_345,
                "loss": 2.5,
                "tokens_per_second": 1500.4,
            },
            "architect": {
                "unit": "active",
                "state": "waiting",
                "round": -1,
                "message": "waits for 4 of 6 nodes",
            },
            "judge": {"unit": "inactive"},
            "netcup-router": {"unreachable": "no answer"},
        }
    )
    assert text.splitlines() == [
        "Node           worker    state        round  tokens   loss  tokens/s  said",
        "qfox           active    training         3  12,345  2.500     1,500",
        "architect      active    waiting         -1",
        "judge          inactive  no run",
        "netcup-router  unknown   unreachable",
        "",
        "  architect      waits for 4 of 6 nodes",
        "  netcup-router  no answer",
    ]


def test_what_was_predicted_stands_beside_what_was_measured() -> None:
    words = ["a round took 61.0 s, predicted 60.0 s (+2%): within the target of 15%"]
    said = render_report({**REPORT, "topology": {"words": words}})
    assert f"Predicted and measured\n  {words[0]}\n" in said
    assert "Predicted" not in render_report({**REPORT, "topology": None})


def test_of_a_divided_model_the_report_says_what_each_node_held() -> None:
    report = copy.deepcopy(REPORT)
    held = {"qfox": ([0, 3], 3_000_000), "judge": ([3, 4], 1_100_000)}
    for each in report["manifest"]["contributions"]:
        each["layers"], each["parameter_bytes"] = held[each["node"]]
    text = render_report(report)
    assert "qfox               0-2      3.0 MB     75%" in text
    assert "judge              3-3      1.1 MB     28%" in text
    assert "whole model                 4.0 MB" in text


def test_a_checkpoint_of_a_divided_model_shows_who_has_which_layers_and_computed_how_long() -> None:
    entry = {
        "round": 2, "step": 150, "loss": 2.5, "total_tokens": 153_600, "train_seconds": 10.0,
        "group": [
            {"node": "qfox", "tokens": 40_000, "layers": [0, 3], "busy_seconds": 9.2},
            {"node": "judge", "tokens": 11_200, "layers": [3, 4], "busy_seconds": 4.0},
        ],
    }  # fmt: skip
    assert round_line(entry, {"target_tokens": 307_200}) == (
        "step   150  loss 2.500  153,600 of 307,200 tokens (50%)  5,120 tokens/s;"
        " layers, and computing:  qfox 0-2 92%  judge 3-3 40%"
    )
    assert "loss not finite" in round_line({**entry, "loss": None}, {"target_tokens": 307_200})
