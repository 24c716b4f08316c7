"""The benchmark's own parts: a contender that did something does not count, results survive being kept."""

from __future__ import annotations

import xml.dom.minidom
from typing import TYPE_CHECKING

import pytest

from tests.bench import chart
from tests.bench.contenders import ANSIBLE, ONE_HOST, OURS, PIPELINING, PYINFRA, START_UP, idle
from tests.bench.results import Results

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
