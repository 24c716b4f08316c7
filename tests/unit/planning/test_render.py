"""A plan as text: what will happen to each host can be told from it alone, in 80 columns."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.parts import ChunkMove, Drift
from tailtrain.planning.rendering.plan import render_plan, summary
from tailtrain.planning.rendering.text import WIDTH, columns, duration, printable, tables, wrapped
from tailtrain.spec import NetworkNode, NodeRole
from tests.plans.situations import NAMES, SEVENTH, Situation, dataset
from tests.unit.planning.plans import DRIFT, FINE, LOCK, eventful, with_host

if TYPE_CHECKING:
    from tailtrain.planning.documents.plan import PlanDocument
    from tailtrain.planning.plan import Plan


@cache
def document() -> PlanDocument:
    return document_of(eventful())


@cache
def text() -> str:
    return render_plan(document(), diff=True)


def shown(plan: Plan, *, diff: bool = False) -> str:
    return render_plan(document_of(plan), diff=diff)


def section(whole: str, title: str) -> list[str]:
    """The lines under a heading, up to the next empty one."""
    found = [part.splitlines() for part in whole.split("\n\n") if part.startswith(title)]
    assert len(found) == 1, f"{title}: {len(found)} times"
    return found[0][1:]


def test_a_plan_without_changes_is_short() -> None:
    plan = Situation().applied().plan()
    lines = shown(plan).splitlines()
    assert [re.sub("^Plan .{12}", "Plan ID", line) for line in lines] == [
        *(f"Plan ID: run {plan.run_id} (finished)", "", "No changes: 6 hosts are as declared.")
    ]


def test_a_plan_without_changes_still_warns_and_tells_drift() -> None:
    plan = Situation().applied().plan()
    plan = with_host(plan, "judge", preflight=replace(FINE, warnings=("key expires soon",)), drift=(DRIFT,))
    whole = shown(plan)
    assert section(whole, "Warnings") == ["  judge  key expires soon"]
    assert section(whole, "Drift") == [
        "  judge: /etc/tailtrain/worker.json",
        "    receipt  aaaa, applied by ann",
        "    found    bbbb, written at noon",
        "    wanted   cccc",
    ]
    assert "Preflight" not in whole
    assert "provision" not in whole


def test_when_nobody_answers_nothing_is_said_to_be_as_declared() -> None:
    situation = Situation().applied()
    for name in NAMES:
        situation.unreachable(name, "no answer")
    whole = shown(situation.plan())
    assert "No changes" not in whole
    assert "as declared" not in whole
    last = " ".join(whole.split("\n\n")[-1].split())
    assert last == f"Nothing is known: none of 6 hosts answered. Unknown: {', '.join(NAMES)}."
    words = " ".join(whole.split())
    assert "if architect answers again: " in words
    assert "if judge, netcup-router answer again: " in words


def test_every_host_is_told_of_with_its_verdict() -> None:
    for host in document().hosts:
        assert re.search(rf"^{re.escape(host.name)} .* {host.verdict}$", text(), re.MULTILINE)
    for left in document().departed:
        assert left.name in text()


def test_a_host_that_is_away_is_unknown_with_its_reason_and_both_ends() -> None:
    lines = " ".join(section(text(), "judge: unreachable, what is there is unknown"))
    assert "no answer within 10 s from 100.64.0.4:22" in lines
    assert "if it answers again: the next plan shows what is there" in lines
    assert "if it stays away: the others go on without it" in lines
    assert text().endswith("Unknown: judge.\n")


def test_hosts_that_are_away_for_the_same_reason_are_told_together() -> None:
    situation = Situation().applied(state="training", unit="active")
    for name in ("architect", "judge"):
        situation.unreachable(name, "no answer")
    whole = shown(situation.plan())
    assert "architect, judge: unreachable, what is there is unknown\n  no answer\n" in whole
    assert "  if they stay away: " in whole
    assert "  if architect answers again: " in whole
    assert "  if judge answers again: " in whole


def test_a_gate_that_is_shut_is_said_to_be() -> None:
    situation = Situation()
    for name in NAMES[1:4]:
        situation.unreachable(name, "no answer")
    assert "the gate is shut: 3 of 6 answered; nothing is done until more do\n" in shown(situation.plan())
    assert "the gate is shut" not in text()


def test_preflight_shows_who_stands_out_in_what_and_folds_the_rest() -> None:
    assert section(text(), "Preflight") == [
        "  qfox, ip-172-31-25-81, netcup-router, racknerd-510bd9c, lighthouse: direct",
        "    path, key good for 30 days, clock within 0.5 s, ample disk",
        "  Host       path             key expires  disk free  needed  clock",
        "  architect  relayed via fra  in 6 days    3.0 GB     2.0 GB  -1.2 s",
    ]
    slow = with_host(Situation().plan(), "judge", preflight=replace(FINE, clock_skew_seconds=1.0))
    assert section(shown(slow), "Preflight")[-2:] == ["  Host   clock", "  judge  +1.0 s"]
    lone = with_host(Situation().plan(), "judge", preflight=replace(FINE, key_days=1.2))
    assert section(shown(lone), "Preflight")[-2:] == ["  Host   key expires", "  judge  in 1 day"]


def test_declared_against_found_hardware_is_told_where_it_matters() -> None:
    hardware = section(text(), "Hardware")
    assert hardware == [
        "  qfox  declared 4 cores, 8 GB, no GPU; found 4 cores, 7.8 GiB, no GPU",
        "        trains on CPU",
    ]


def test_shares_are_checked_and_a_wrong_sum_is_shouted() -> None:
    check = "check: shares 65536/65536, natural 15,000/15,000, coding 3,000/3,000: exact\n"
    assert check in text()
    first, *others = document().datasets
    wrong = msgspec.structs.replace(
        document(), datasets=(msgspec.structs.replace(first, shared_out=14_999), *others)
    )
    assert "natural 14,999/15,000, coding 3,000/3,000: NOT EQUAL\n" in render_plan(wrong)


def test_moves_have_reason_bytes_time_total_and_the_least_possible() -> None:
    moves = (ChunkMove("judge left", 3, 5_000_000), ChunkMove("damaged", 1, 400_000, "by a lot"))
    plan = Situation().applied(state="training", unit="active").add(SEVENTH).plan()
    plan = with_host(plan, "qfox", moves=moves, seconds_to_send=42.3, send_rate="1 MB/s assumed")
    whole = shown(plan)
    lines = section(whole, "Data to move")
    assert lines[1].split() == ["qfox", "4", "5.4", "MB", "about", "42", "s"]
    total = next(line for line in lines if line.startswith("  total"))
    assert total.endswith("about 42 s")
    assert "  time at 1 MB/s assumed, at 12 MB/s assumed" in lines
    assert "\n  judge left: qfox 3\n  damaged: qfox 1 (by a lot)\n" in whole
    words = " ".join(lines)
    assert "natural: 2,727 records to another node than before, the least possible is" in words


def test_what_is_lost_stands_last_before_the_summary() -> None:
    *_, lost, last = text().split("\n\n")
    assert last.startswith("Plan: ")
    assert lost.startswith("Interrupted\n  qfox, architect, ")
    assert "\nRemoved from hosts, last of all\n  qfox: run 0123 (finished), frees 7.0 MB" in lost
    assert "\nRemoved from hosts that left the fleet, last of all\n  lantern: " in lost


def test_the_summary_counts_hosts_chunks_and_bytes() -> None:
    assert summary(document()) == (
        "Plan: 1 host to install, 5 to restart, 1 leaving; 48 chunks (2.8 MB) to send or fetch,"
        " 16.0 MB to remove. Unknown: judge."
    )
    one = Situation(nodes=Situation().nodes[:1])
    assert summary(document_of(one.plan())).startswith("Plan: 1 host to install; ")
    assert summary(document_of(one.applied().plan())) == "No changes: 1 host is as declared."


def test_hosts_that_left_are_told_with_what_becomes_of_them() -> None:
    assert section(text(), "Left the inventory") == [
        "  lantern  stop the worker",
        "           remove the worker, its data and all runs",
        "  beacon   unreachable: what it has stays there until it answers; it is",
        "           forgotten when it leaves the tailnet",
        "           no answer within 10 s",
        "  ember    the tailnet does not know it any more: nothing can be done there",
        "  flare    keeps 5.0 MB of ours until all hosts of the inventory answer",
        "  torch    has nothing of ours any more",
    ]


def test_who_deploys_is_told_with_the_way_to_break_the_lock() -> None:
    assert text().split("\n\n")[1].splitlines() == [
        "Locked: ann@desk deploys since 2026-01-01 10:00 UTC, plan 0123456789ab.",
        "  Nobody else can deploy until they are done.",
        "  If they are gone: tailtrain unlock lock-5af3",
    ]
    idle = replace(Situation().applied().plan(), lock=replace(LOCK, plan=""))
    assert "plan not known." in shown(idle)


def test_files_that_change_are_hinted_at_or_shown() -> None:
    plan = Situation().applied(state="training", unit="active").add(SEVENTH).plan()
    assert "\nFiles change on 6 hosts: --diff shows how.\n" in shown(plan)
    assert "--diff shows how" not in shown(plan, diff=True)
    assert "--diff shows how" not in shown(Situation().plan())
    assert "\n/etc/tailtrain/blob on qfox: not text\n  --- 3 bytes, SHA-256\n    " in text()


def test_it_is_said_that_nothing_was_changed_where_only_the_plan_was_asked_for() -> None:
    assert render_plan(document(), read_only=True).splitlines()[1] == "Read-only: nothing was changed."
    assert "Read-only" not in text()


def test_what_is_known_later_is_marked() -> None:
    later = section(text(), "Not known yet")
    assert "  the model, its SHA-256 and who is in its average (known after aggregation)" in later


def names(longest: int) -> st.SearchStrategy[str]:
    return st.from_regex(rf"[a-z][a-z0-9-]{{0,{longest - 2}}}[a-z0-9]", fullmatch=True)


@settings(max_examples=25, deadline=None)
@given(
    hosts=st.lists(names(30), min_size=1, max_size=12, unique=True),
    domains=st.lists(names(20).map(lambda name: name.replace("-", "_")), min_size=1, max_size=7, unique=True),
    reason=st.text("abcdefghij \n", max_size=300),
    data=st.data(),
)
def test_lines_stay_within_eighty_columns_and_nothing_is_left_out(
    hosts: list[str], domains: list[str], reason: str, data: st.DataObject
) -> None:
    nodes = tuple(
        NetworkNode(
            name,
            f"100.64.1.{number + 1}",
            4,
            16,
            has_gpu=False,
            role=NodeRole.COMPUTE if number else NodeRole.PRIMARY,
            storage_gb=100,
        )
        for number, name in enumerate(hosts)
    )
    sets = tuple(dataset(domain, f"{domain}.parquet", (50,) * 20, (3,)) for domain in domains)
    situation = Situation(nodes=nodes, datasets=sets).with_settings(
        datasets={domain: f"{domain}.parquet" for domain in domains}
    )
    away = data.draw(st.sampled_from(hosts))
    situation.unreachable(away, reason)
    plan = situation.plan()
    other = data.draw(st.sampled_from(hosts))
    drift = Drift("/etc/x", reason, reason, reason)
    notes = (reason, "a note")
    whole = shown(with_host(plan, other, drift=(drift,), notes=notes, preflight=replace(FINE, key_days=3.0)))
    words = reason.split()
    longest = max([len(word) for word in words], default=0)
    if longest < WIDTH - 40:
        assert [line for line in whole.splitlines() if len(line) > WIDTH] == []
    assert [name for name in hosts if name not in whole] == []
    if plan.changes:
        assert [domain for domain in domains if domain not in whole] == []
    assert all(word in whole for word in words)


def test_wide_tables_go_on_below_with_their_first_column() -> None:
    rows = [["Node", *(f"domain{number}" for number in range(12))], ["qfox", *range(12)]]
    lines = tables(rows, right=range(1, 13), indent=0)
    assert max(len(line) for line in lines) <= WIDTH
    assert [line.split()[0] for line in lines if line] == ["Node", "qfox", "Node", "qfox"]
    assert "".join(lines).count("domain") == 12


def test_long_words_stay_whole_and_blank_lines_stay() -> None:
    word = "w" * 100
    assert wrapped(f"a {word} b", indent=2) == ["  a", f"    {word}", "    b"]
    assert wrapped("a\n\nb") == ["a", "", "b"]
    assert columns([("x", "a\nb"), ("x", "c"), ("yy", "")]) == ["  x   a", "      b", "      c", "  yy"]


def test_what_a_terminal_would_obey_is_spelt_out() -> None:
    assert printable("a\x1b[31m\tb\u202e") == "a\\x1b[31m\\tb\\u202e"
    assert printable("é Ω") == "é Ω"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "under 1 s"),
        (1.4, "about 1 s"),
        (119.0, "about 119 s"),
        (120.0, "about 2 min"),
        (7_199.0, "about 120 min"),
        (9_000.0, "about 2 h"),
    ],
)
def test_times_are_no_finer_than_they_are_known(seconds: float, words: str) -> None:
    assert duration(seconds) == words
