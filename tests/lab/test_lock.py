"""One deploy at a time, on real hosts: others come, processes die, locks are broken."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.pair import OTHER, PRIMARY

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.lab.pair import Pair

pytestmark = pytest.mark.lab

APPLY = ("tailtrain", "apply", "--yes")


@pytest.fixture(scope="module")
def endless(pair: Pair) -> Iterator[Pair]:
    """A run without an end; whoever deploys it watches, and holds the lock meanwhile."""
    pair.set("target_tokens", "1_000_000_000")
    yield pair
    pair.run("tailtrain", "stop")
    pair.set("target_tokens", "60_000")


def ended(process: subprocess.Popen[str], seconds: float = 30) -> str:
    """What a process said, which has to end by itself."""
    return process.communicate(timeout=seconds)[0]


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Until a process has said this."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"it ended without having said {text!r}")


def wait_until_free(pair: Pair, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while pair.holder():
        assert time.monotonic() < deadline, pair.holder()
        time.sleep(0.1)


def working(pair: Pair) -> list[str]:
    return [
        pair.on(host, "systemctl is-active tailtrain-worker || true").strip() for host in (PRIMARY, OTHER)
    ]


def test_a_second_deploy_is_told_who_what_since_when_and_how_to_break_it(endless: Pair) -> None:
    with endless.in_the_background(*APPLY) as first:
        record = endless.wait_for_holder(first)
        wait_for(first, "Distributed training: rounds")
        for second in (APPLY, ("pyinfra", "-y", "inventory.py", "deploys/train.py")):
            started = time.monotonic()
            said = endless.said(4, *second)
            assert time.monotonic() - started < 15
            assert (
                f"{PRIMARY}: {record['who']} is deploying plan {record['plan']}, since {record['since']}"
                in said
            )
            assert f"tailtrain unlock {record['token']}" in said
            assert "Traceback" not in said
        assert endless.holder() == record, "the first one goes on"
        assert first.poll() is None
        assert record["token"] in endless.said(4, "tailtrain", "unlock")
        assert "is not the lock's token" in endless.said(4, "tailtrain", "unlock", "00000000")


def test_a_killed_deploy_frees_the_lock_at_once(endless: Pair) -> None:
    """The one before was killed at the end of its test."""
    wait_until_free(endless)
    assert working(endless) == ["active", "active"], "training goes on"


def test_a_killed_holder_is_started_again_by_its_deploy(endless: Pair) -> None:
    with endless.in_the_background(*APPLY) as first:
        record = endless.wait_for_holder(first)
        wait_for(first, "Distributed training: rounds")
        endless.on(PRIMARY, f"kill -9 {record['pid']}")
        again = endless.wait_for_holder(first, other_than=record["pid"])
        assert again["token"] == record["token"]
        assert first.poll() is None


def test_a_broken_lock_stops_its_deploy_and_leaves_training_alone(endless: Pair) -> None:
    wait_until_free(endless)
    with endless.in_the_background(*APPLY) as first:
        record = endless.wait_for_holder(first)
        wait_for(first, "Distributed training: rounds")
        said = endless.said(0, "tailtrain", "unlock", record["token"])
        assert f"broken: {record['who']} is deploying plan {record['plan']}" in said
        rest = ended(first)
        assert first.returncode == 4, rest
        assert f"the deploy lock was broken by {record['who']}" in rest
        assert "Results\n" in rest
    assert working(endless) == ["active", "active"]
    assert "nobody is deploying" in endless.said(0, "tailtrain", "unlock")


def test_ctrl_c_while_watching_says_how_to_come_back_and_frees_the_lock(endless: Pair) -> None:
    with endless.in_the_background(*APPLY) as first:
        endless.wait_for_holder(first)
        wait_for(first, "round ")
        first.send_signal(signal.SIGINT)
        rest = ended(first)
        assert first.returncode == 130, rest
        assert "goes on without this window" in rest
        assert "tailtrain stop" in rest
        assert rest.count("Results\n") == 1
        assert "  training  goes on without this window" in rest
    wait_until_free(endless)
    assert working(endless) == ["active", "active"]


def test_a_primary_that_was_cut_off_for_a_while_is_locked_again_by_the_same_deploy(endless: Pair) -> None:
    with endless.in_the_background(*APPLY) as first:
        record = endless.wait_for_holder(first)
        wait_for(first, "Distributed training: rounds")
        endless.on(PRIMARY, "systemctl restart tailscaled")
        again = endless.wait_for_holder(first, 90, other_than=record["pid"])
        assert again["token"] == record["token"]
        assert first.poll() is None


def test_two_that_begin_at_the_same_moment(endless: Pair) -> None:
    wait_until_free(endless)
    with endless.in_the_background(*APPLY) as one, endless.in_the_background(*APPLY) as other:
        deadline = time.monotonic() + 60
        while one.poll() is None and other.poll() is None:
            assert time.monotonic() < deadline, "both go on"
            time.sleep(0.1)
        loser, winner = (one, other) if one.poll() is not None else (other, one)
        said: Any = loser.communicate()[0]
        assert loser.returncode == 4, said
        assert winner.poll() is None
