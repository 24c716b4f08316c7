"""What a deploy costs that finds nothing to do: one connection, a command or two, and few round trips.

How long it takes, beside other tools, is measured by `make bench`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.project import NODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.project import Project

pytestmark = pytest.mark.lab

# Long, so that a machine that is busy with other things makes little difference.
ONE_WAY_SECONDS = 0.25
NOTHING = "No changes: 6 hosts are as declared."


@pytest.fixture(scope="module")
def finished(project: Project, trained: str) -> Project:
    """The project with nothing left to do."""
    project.deploy("-y")
    return project


def test_a_no_op_is_one_connection_and_at_most_two_commands_on_each_host(finished: Project) -> None:
    """Counted on the hosts: by what their tailscaled says of connections and sessions."""
    since = {node: finished.on(node, "journalctl -u tailscaled -n 0 --show-cursor -q") for node in NODES}
    assert NOTHING in finished.deploy("-y")
    for node in NODES:
        cursor = since[node].strip().removeprefix("-- cursor: ")
        log = finished.on(node, f"journalctl -u tailscaled -o cat -q --after-cursor='{cursor}'")
        assert log.count(": handling conn: ") == 1, log
        assert 1 <= log.count(": starting session: ") <= 2, log


def seconds(work: Callable[[], str]) -> float:
    """The shorter of two runs, each of which finds nothing to do."""
    found = []
    for _ in range(2):
        started = time.monotonic()
        assert NOTHING in work()
        found.append(time.monotonic() - started)
    return min(found)


def test_distance_costs_a_few_round_trips_however_many_files_there_are(finished: Project) -> None:
    """Four for connecting, two or three for the one question; a file a round trip would be hundreds."""
    assert len(finished.config("qfox")["data"][0]["ranges"]) > 20
    near = seconds(lambda: finished.deploy("-y"))
    try:
        finished.lab.slow_down(ONE_WAY_SECONDS)
        far = seconds(lambda: finished.deploy("-y"))
    finally:
        finished.lab.slow_down(0)
    assert (far - near) / (2 * ONE_WAY_SECONDS) < 10, f"{near:.2f} s near, {far:.2f} s far"
