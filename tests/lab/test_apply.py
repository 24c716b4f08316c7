"""`tailtrain apply`: it shows, asks, does exactly that, and looks again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.lab.pair import CHUNKS, CONFIG, OTHER, PRIMARY

if TYPE_CHECKING:
    from tests.lab.pair import Pair

pytestmark = pytest.mark.lab

RESULTS = re.compile(r"^Results\n(?:  .*\n)+Next: .*$", re.MULTILINE)


def results(said: str) -> dict[str, str]:
    """Each host's line in the one table of results."""
    (table,) = RESULTS.findall(said.replace("\r", ""))
    rows = (line.split(maxsplit=1) for line in table.splitlines()[1:-1] if line[2] != " ")
    return {row[0]: row[1] for row in rows}


def deploys(pair: Pair) -> str:
    """The number that every deploy raises."""
    return pair.on(PRIMARY, "cat /run/tailtrain/last.json 2>/dev/null || true")


@pytest.fixture(scope="module")
def asked(pair: Pair) -> str:
    """What is said on fresh hosts where nobody can be asked."""
    return pair.said(1, "tailtrain", "apply")


@pytest.fixture(scope="module")
def applied(pair: Pair, asked: str) -> str:
    """What a first apply says, to which a person said yes."""
    return pair.typed(0, "yes", "tailtrain", "apply")


def test_without_a_terminal_it_says_what_is_at_stake_and_which_flag_to_pass(pair: Pair, asked: str) -> None:
    assert "This will\n  install the worker on alpha, beta\n" in asked
    assert re.search(r"^  send \d+ chunks \(\d\.\d MB\) to alpha, beta$", asked, re.MULTILINE)
    assert re.search(r"^  train run \w{16} to its end, 60,000 tokens", asked, re.MULTILINE)
    assert asked.endswith("tailtrain apply --yes\n")
    for host in (PRIMARY, OTHER):
        assert pair.on(host, f"test -e {CONFIG} || echo untouched") == "untouched\n"


def test_anything_but_yes_changes_nothing(pair: Pair, asked: str) -> None:
    said = pair.typed(1, "y", "tailtrain", "apply")
    assert "Type yes to do this: " in said
    assert "Nothing was done." in said
    assert pair.on(PRIMARY, f"test -e {CONFIG} || echo untouched") == "untouched\n"
    assert deploys(pair) == ""


def test_it_does_what_was_shown_tells_each_hosts_result_and_then_finds_no_changes(applied: str) -> None:
    plan = re.search(r"^Plan (\w{12}): run", applied, re.MULTILINE)
    assert plan is not None
    assert f"Plan {plan[1]}, as approved" in applied
    assert applied.count("2 hosts to install") == 1, "the plan is shown once"
    assert results(applied) == {
        PRIMARY: "done     first install",
        OTHER: "done     first install",
    } or results(applied) == {PRIMARY: "done  first install", OTHER: "done  first install"}
    assert "Next: tailtrain report, tailtrain fetch FOLDER" in applied
    assert "No changes: 2 hosts are as declared." in applied.rstrip().splitlines()[-1]


def test_where_nothing_is_to_be_done_nothing_is_asked_and_no_lock_is_taken(pair: Pair, applied: str) -> None:
    before = deploys(pair)
    said = pair.said(0, "tailtrain", "apply")
    assert "This will" not in said
    assert "Results" not in said
    assert "Results\n" not in pair.said(0, "pyinfra", "-y", "inventory.py", "deploys/train.py")
    assert deploys(pair) == before


def test_a_dry_run_takes_no_lock_and_has_no_results(pair: Pair, applied: str) -> None:
    pair.remove_a_chunk(OTHER)
    before = deploys(pair)
    said = pair.said(0, "pyinfra", "inventory.py", "deploys/train.py", "--dry")
    assert "1 chunk" in said
    assert "Results\n" not in said
    assert deploys(pair) == before
    assert "Results\n" in pair.said(0, "tailtrain", "apply", "--yes")


def test_a_saved_plan_is_refused_where_a_host_has_changed_since(pair: Pair, applied: str) -> None:
    chunk = pair.remove_a_chunk(OTHER)
    pair.said(2, "tailtrain", "plan", "--out", "saved.json")
    pair.on(OTHER, f"echo >> {CONFIG}")
    before = deploys(pair)
    said = pair.said(1, "tailtrain", "apply", "saved.json", "--yes")
    assert "no longer holds; nothing was done" in said
    assert re.search(rf"^  {OTHER}: .*worker\.json", said, re.MULTILINE), said
    assert "This will" not in said
    assert pair.on(OTHER, f"test -e {chunk} || echo missing") == "missing\n"
    assert deploys(pair) == before


def test_a_saved_plan_that_holds_is_done_and_nothing_else(pair: Pair, applied: str) -> None:
    pair.said(2, "tailtrain", "plan", "--out", "saved.json")
    saved = json.loads((pair.folder / "saved.json").read_text())
    said = pair.said(0, "tailtrain", "apply", "saved.json", "--yes")
    assert f"Plan {saved['id']}, as approved" in said
    assert results(said)[OTHER].startswith("done")
    assert results(said)[PRIMARY].startswith("no change")
    assert pair.said(0, "tailtrain", "apply", "saved.json")


def test_a_deploy_refuses_another_plan_than_the_approved_one(pair: Pair, applied: str) -> None:
    """The world changed after a person said yes."""
    chunk = pair.remove_a_chunk(OTHER)
    said = pair.said(
        1, "env", "TAILTRAIN_PLAN=000000000000", "pyinfra", "-y", "inventory.py", "deploys/train.py"
    )
    assert "plan 000000000000 no longer holds; nothing was done" in said
    assert "Traceback" not in said
    assert pair.on(OTHER, f"test -e {chunk} || echo missing") == "missing\n"
    pair.said(0, "tailtrain", "apply", "--yes")


def test_what_failed_is_told_with_its_last_word_and_the_rest_as_not_run(pair: Pair, applied: str) -> None:
    pair.remove_a_chunk(OTHER)
    pair.on(PRIMARY, "rm /var/lib/tailtrain/receipt.json")
    pair.on(OTHER, f"mount --bind {CHUNKS} {CHUNKS} && mount -o remount,ro,bind {CHUNKS}")
    try:
        said = pair.said(1, "tailtrain", "apply", "--yes")
    finally:
        pair.on(OTHER, f"umount {CHUNKS}")
    found = results(said)
    assert re.match(r"failed +'Data distribution: chunks':", found[OTHER]), found
    assert "is read-only" in " ".join(said[said.index("Results\n") :].split())
    assert re.match(r"not run +stopped before '", found[PRIMARY]), found
    assert "Next: tailtrain logs beta" in said
    pair.said(0, "tailtrain", "apply", "--yes")


def test_a_host_that_is_away_is_unknown_and_the_exit_code_says_so(pair: Pair, applied: str) -> None:
    pair.lab.host(OTHER).power_cut()
    try:
        assert "Unknown: beta." in pair.said(3, "tailtrain", "apply")
    finally:
        pair.lab.host(OTHER).boot()


def test_serial_and_no_wait_are_refused_before_anything_is_done(pair: Pair, applied: str) -> None:
    chunk = pair.remove_a_chunk(OTHER)
    for option in ("--serial", "--no-wait"):
        said = pair.said(1, "pyinfra", "-y", option, "inventory.py", "deploys/train.py")
        assert "leave out --serial and --no-wait" in said
        assert "Traceback" not in said
    assert pair.on(OTHER, f"test -e {chunk} || echo missing") == "missing\n"
    pair.said(0, "tailtrain", "apply", "--yes")
