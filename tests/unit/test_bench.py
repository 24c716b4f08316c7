"""The benchmarks' own parts: a contender that did something does not count, results survive being kept."""

from __future__ import annotations

import xml.dom.minidom
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bench import chart
from tests.bench.contenders import ANSIBLE, ONE_HOST, OURS, PIPELINING, PYINFRA, START_UP, idle
from tests.bench.push import chart as push_chart
from tests.bench.push import data, measure, senders
from tests.bench.quality import chart as quality_chart
from tests.bench.quality import data as quality_data
from tests.bench.quality import measure as quality
from tests.bench.quality.data import FILES
from tests.bench.results import Results, Target
from tests.bench.train import chart as train_chart
from tests.bench.train import loss_of_a_node, plain_ddp
from tests.bench.train import measure as train

if TYPE_CHECKING:
    from pathlib import Path

TOTAL = "    Grand total                      90      {}         -       {}           "
MEDIANS = {START_UP: 0.6, OURS: 1.1, PYINFRA: 4.0, PIPELINING: 9.0, ANSIBLE: 15.0}
RECAP = "judge : ok=8    changed={}    unreachable={}    failed=0    skipped=1    rescued=0    ignored=0"


@pytest.mark.parametrize(
    ("name", "said", "verdict"),
    [
        (OURS, "\nNo changes: 6 hosts are as declared.\n", True),
        (ONE_HOST, "\nNo changes: 1 host is as declared. Unknown: judge.\n", True),
        (OURS, "\nPlan: 1 host to update, 5 unchanged.\n", False),
        (PYINFRA, TOTAL.format("-", "90"), True),
        (PYINFRA, TOTAL.format("1", "89"), False),
        (PYINFRA, "", False),
        (ANSIBLE, f"{RECAP.format(0, 0)}\n{RECAP.format(0, 0)}", True),
        (ANSIBLE, f"{RECAP.format(0, 0)}\n{RECAP.format(1, 0)}", False),
        (ANSIBLE, f"{RECAP.format(0, 0)}\n{RECAP.format(0, 1)}", False),
        (ANSIBLE, "", False),
        (PIPELINING, RECAP.format(0, 1), False),
    ],
)
def test_only_a_run_that_changed_nothing_anywhere_counts(name: str, said: str, verdict: bool) -> None:  # noqa: FBT001 - a parameter of a test
    assert idle(name, said) is verdict


@pytest.fixture
def results() -> Results:
    found = Results(facts={"cpu_count": 2, "date": "2026-01-01 00:00:00"})
    for suffix, factor in (("", 1.0), (" at 50 ms", 2.0)):
        for name, seconds in MEDIANS.items():
            for disturbed in (1.0, 1.1, 3.0):
                found.add(f"{name}{suffix}", seconds * factor * disturbed, memory=10**6)
    return found


def test_medians_and_ratios_stand_up_to_one_disturbed_round(results: Results) -> None:
    assert results.median(OURS) == pytest.approx(1.21)
    assert results.ratio(ANSIBLE, OURS) == pytest.approx(15.0 / 1.1)


def test_a_target_is_missed_on_its_wrong_side_alone() -> None:
    assert Target("time", 1.2, 1.1, "s").missed
    assert not Target("time", 1.1, 1.1, "s").missed
    assert Target("rate", 94.0, 95, "%", least=True).missed
    assert not Target("rate", 96.0, 95, "%", least=True).missed
    assert str(Target("rate", 94.0, 95, "%", least=True)).split()[-1] == "missed"


@pytest.fixture
def pushed() -> Results:
    found = Results(facts={"cpu_count": 2, "date": "2026-01-01 00:00:00", "load_avg_1min": 0.25})
    found.figures["line, Mbit/s"] = 90.0
    for case, megabytes in ((measure.ONE, 150), (measure.SIX, 170)):
        found.figures |= {
            f"{case}, chunks": 263,
            f"{case}, bytes": megabytes * 1e6,
            f"{case}, most chunks of a host": 160,
        }
        for where, seconds in ((case, 2.0), (f"{case}, {measure.NARROW}", megabytes * 8 / 90 / 0.96)):
            for name in measure.MAIN:
                found.add(f"{where}: {name}", seconds)
        found.add(f"{case}: {measure.DEPLOY}", 3.0)
        found.add(f"{case}: {senders.COMMAND}", 2.5)
        found.add(f"{case}: {senders.PYINFRA}", 34.0)
        found.add(f"{case}: {senders.ANSIBLE}", 12.0)
    found.add(measure.UNCHANGED, 1.2)
    found.add(measure.ADDED, 4.0)
    for name, value in (("moved", 13e6), ("least", 12e6), ("boundaries", 2.0), ("largest", 0.6e6)):
        found.figures[f"{measure.ADDED}, {name}"] = value
    return found


def test_pushing_is_judged_by_scp_the_line_and_what_has_to_move(pushed: Results, tmp_path: Path) -> None:
    assert [target.missed for target in measure.targets(pushed)] == [False] * 5
    assert measure.line_rate(pushed, measure.SIX, senders.OURS) == pytest.approx(0.96)
    assert "tar over ssh 96.0%" in measure.ratios(pushed)
    pushed.save(tmp_path / "kept.json")
    assert Results.load(tmp_path / "kept.json") == pushed
    pushed.figures[f"{measure.ADDED}, moved"] = 13.3e6
    assert [target.missed for target in measure.targets(pushed)][-1]


def test_a_bar_that_is_too_long_is_cut_and_keeps_its_number(pushed: Results) -> None:
    document = xml.dom.minidom.parseString(push_chart.draw(pushed))  # noqa: S318 - our own text
    shown = {child.nodeValue for text in document.getElementsByTagName("text") for child in text.childNodes}
    assert {"tailtrain", "scp -r", "2.0 s", "→ 34.0 s", "→ 120 s"} <= shown
    widths = [float(bar.getAttribute("width")) for bar in document.getElementsByTagName("rect")]
    assert max(widths) <= chart.WIDTH - push_chart.LEFT - chart.RIGHT


def test_the_data_set_that_is_pushed_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        data.make(tmp_path / name, 20)
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "other").read_bytes()
    assert len(content) == pytest.approx(20e6, rel=0.05)


def test_what_is_kept_is_what_was_measured(results: Results, tmp_path: Path) -> None:
    results.save(tmp_path / "kept.json")
    again = Results.load(tmp_path / "kept.json")
    assert again == results
    assert again.table() == results.table()


def test_the_chart_is_one_document_that_names_everybody(results: Results) -> None:
    drawn = chart.draw(results)
    document = xml.dom.minidom.parseString(drawn)  # noqa: S318 - our own text
    shown = {child.nodeValue for text in document.getElementsByTagName("text") for child in text.childNodes}
    assert {"tailtrain", "plain pyinfra operations", "Ansible", "1.2 s", "33.0 s"} <= shown


@pytest.fixture
def trained() -> Results:
    found = Results(facts={"cpu_count": 2, "date": "2026-01-01 00:00:00", "load_avg_1min": 0.25})
    found.figures |= {
        train.ROUND: 60.0,
        "hosts": 6,
        "cores, all hosts": 1.71,
        f"{train.ALONE}: {train.SPEED}": 20_000.0,
        f"{train.TOGETHER}: {train.SPEED}": 18_000.0,
        f"{train.EQUAL}: {train.SPEED}": 6_000.0,
        f"{train.DDP}: {train.SPEED}": 5_000.0,
        f"{train.DDP}: {train.TRAFFIC}": 6_000.0,
        f"{train.LOST}: the others waited, s": 4.0,
        train.BEYOND: 350.0,
    }
    for protocol in ("decentralized", "eneGossip"):
        for seconds in (61.0, 62.0, 63.0):
            found.add(f"{protocol}: round", seconds)
        found.figures |= {
            f"{protocol}: {train.SPEED}": 17_460.0,
            f"{protocol}: {train.TRAFFIC}": 40.0,
            f"{protocol}: {train.PREDICTED}": 60.0,
        }
    return found


def test_training_is_judged_by_the_hosts_own_speeds_ddp_and_the_prediction(
    trained: Results, tmp_path: Path
) -> None:
    assert train.protocols_of(trained) == ["decentralized", "eneGossip"]
    assert train.share(trained, "eneGossip") == pytest.approx(0.97)
    assert train.less(trained, "eneGossip") == pytest.approx(150)
    assert not any(target.missed for target in train.targets(trained))
    assert "97.0% of the sum of the hosts (87.3% of one by one)" in train.ratios(trained)
    trained.save(tmp_path / "kept.json")
    assert Results.load(tmp_path / "kept.json") == trained
    trained.figures[f"decentralized: {train.PREDICTED}"] = 50.0
    trained.figures[f"eneGossip: {train.SPEED}"] = 17_000.0
    missed = [target.name for target in train.targets(trained) if target.missed]
    assert missed == ["decentralized, a round, off the prediction", "eneGossip, of the sum of the hosts"]


def test_a_protocol_without_a_prediction_is_not_judged_by_one(trained: Results) -> None:
    del trained.figures[f"eneGossip: {train.PREDICTED}"]
    names = [target.name for target in train.targets(trained)]
    assert [name for name in names if "prediction" in name] == ["decentralized, a round, off the prediction"]


def test_only_a_round_that_ended_after_the_cut_is_one_without_the_lost_host() -> None:
    rounds = [
        {"ended_unix": ended, "group": [{"node": node} for node in nodes]}
        for ended, nodes in ((90.0, "ac"), (101.0, "abc"), (110.0, "ac"), (120.0, "ac"))
    ]
    found = loss_of_a_node._without(rounds, "b", cut=100.0)
    assert [entry["ended_unix"] for entry in found] == [110.0, 120.0]


def test_variables_of_a_unit_are_told_from_what_they_are_for() -> None:
    command = ["env", "PYTHONPATH=/code", "OMP_NUM_THREADS=1", "/env/bin/python", "-u"]
    assert plain_ddp._split(command) == (command[:3], command[3:])


def words_of(drawn: str) -> set[str]:
    document = xml.dom.minidom.parseString(drawn)  # noqa: S318 - our own text
    return {
        str(child.nodeValue) for text in document.getElementsByTagName("text") for child in text.childNodes
    }


def test_the_chart_of_training_names_all_and_their_figures(trained: Results) -> None:
    shown = words_of(train_chart.draw(trained))
    assert {"tailtrain, eneGossip", "17,460", "equal shares, at best²", "DDP over gloo", "6,000 B"} <= shown


@pytest.fixture
def learned() -> Results:
    found = Results(facts={"cpu_count": 2, "date": "2026-01-01 00:00:00"})
    for seed in (17, 18):
        found.add(quality.FLEET, 60.0)
        for name in quality.names_of(found):
            found.figures[f"{seed}, {quality.TOKENS}: {name}"] = 4e6
            found.figures[f"{seed}, {quality.ROUNDS}: {name}"] = 30
            for domain in FILES:
                found.figures[f"{seed}, {domain}: {name}"] = 2.0 + (name != quality.FLEET) * 0.1
    return found


def test_what_is_learned_is_judged_in_the_worst_seed_and_the_mean(learned: Results) -> None:
    assert quality.seeds_of(learned) == [17, 18]
    assert not any(target.missed for target in quality.targets(learned))
    learned.figures[f"18, coding: {quality.SAME_TIME}"] = 1.99
    learned.figures[f"18, natural: {quality.SAME_TOKENS}"] = 1.97
    missed = [target.name for target in quality.targets(learned) if target.missed]
    assert missed == ["coding: loss above the fastest's, same time"], "the mean of the tokens still holds"
    learned.figures[f"17, natural: {quality.own('tiny')}"] = 1.9
    assert next(quality.targets(learned)).missed


def test_the_chart_of_what_is_learned_has_a_panel_for_each_domain(learned: Results) -> None:
    shown = words_of(quality_chart.draw(learned))
    assert {"the fleet", "2.000", "tiny, own share", "2.100"} <= shown
    assert len([text for text in shown if "held-out loss" in text]) == len(FILES)


def test_shares_of_the_data_are_whole_and_apart(tmp_path: Path) -> None:
    for name in FILES.values():
        texts = [f"record {number} of {name}" for number in range(600)]
        pq.write_table(pa.table({"text": texts}), tmp_path / name)
    cores = {"one": 8.0, "other": 2.0}
    shared = quality_data.shared(tmp_path, tmp_path / "cut", cores)
    for dataset in shared.datasets:
        ranges = shared.placements[dataset.domain]
        rows = {node: sum(stop - start for _, start, stop in ranges[node]) for node in cores}
        assert sum(rows.values()) == dataset.train_records
        assert rows["one"] == pytest.approx(4 * rows["other"], abs=2)
        assert shared.own_of("other").placements[dataset.domain] == {"other": ranges["other"]}
        (whole,) = shared.all_of("one").placements[dataset.domain].values()
        assert sum(stop - start for _, start, stop in whole) == dataset.train_records
