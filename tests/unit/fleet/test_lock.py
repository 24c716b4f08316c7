"""The deploy lock: one deploy at a time, whatever becomes of those that hold it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import pytest

from tailtrain.errors import FleetError, LockedError
from tailtrain.fleet import lock_program
from tailtrain.fleet.lock import DeployLock, break_lock, duration, holder_of, locked, look, own_name

if TYPE_CHECKING:
    from tests.unit.tailnet.tailnet_stand_in import Deployment, Tailnet

pytestmark = pytest.mark.patched


class Primary:
    """The host that keeps the lock, and the folder where it does."""

    def __init__(self, deployment: Deployment, name: str, folder: Path) -> None:
        self.host, self.folder = deployment.host(name), str(folder / "lock")

    def lock(
        self, plan: str = "aaaa", *, expected: int | None = -1, silence_seconds: float = 60
    ) -> DeployLock:
        """A lock for a plan that was made a moment ago, unless said otherwise."""
        seen = self.observed()["deploys"] if expected == -1 else expected
        return DeployLock(self.host, plan, seen, folder=self.folder, silence_seconds=silence_seconds)

    def observed(self) -> dict[str, Any]:
        """What a probe would say."""
        return lock_program.observed_lock(self.folder)

    def files(self) -> list[str]:
        """What there is in the lock's folder."""
        return sorted(path.name for path in Path(self.folder).iterdir())

    def pid(self) -> int:
        """The holding process."""
        return int(lock_program.read(self.folder, "holder.json")["pid"])

    def wait_until_free(self, seconds: float = 5) -> None:
        """Until nobody holds it, looking as a probe would."""
        deadline = time.monotonic() + seconds
        while self.observed()["holder"]:
            assert time.monotonic() < deadline, "still held"
            gevent.sleep(0.02)


@pytest.fixture(params=["ssh", "own machine"])
def primary(request: pytest.FixtureRequest, tailnet: Tailnet, tmp_path: Path) -> Primary:
    """A primary over SSH, and one that is the control machine itself."""
    tailnet.add("qfox")
    name = {"ssh": "qfox", "own machine": "control"}[request.param]
    return Primary(tailnet.deploy(f"@tailscale/{name}"), name, tmp_path)


@pytest.fixture
def over_ssh(tailnet: Tailnet, tmp_path: Path) -> Primary:
    tailnet.add("qfox")
    return Primary(tailnet.deploy("@tailscale/qfox"), "qfox", tmp_path)


def test_it_is_seen_while_it_is_held_and_raises_the_number_of_deploys(primary: Primary) -> None:
    assert primary.observed() == {"holder": None, "deploys": 0}
    lock = primary.lock("aaaa")
    assert not lock.held
    assert lock.require() is None
    assert lock.held
    assert lock.require() is None, "it is held already"
    during = primary.observed()
    holder = holder_of(during)
    assert holder is not None
    assert (holder.token, holder.who, holder.plan) == (lock.token, own_name(), "aaaa")
    assert look(primary.host, primary.folder) is not None
    lock.release()
    assert not lock.held
    after = primary.observed()
    assert after["holder"] is None
    assert 0 < during["deploys"] < after["deploys"]
    assert look(primary.host, primary.folder) is None
    assert primary.files() == ["deploy.lock", "last.json"]


def test_the_second_is_told_who_since_when_which_plan_and_how_to_break_it(primary: Primary) -> None:
    first, second = primary.lock("aaaa"), primary.lock("bbbb")
    first.require()
    with pytest.raises(LockedError) as caught:
        second.require()
    said = str(caught.value)
    assert f"{own_name()} is deploying plan aaaa, since 20" in said
    assert "Z (0 s). " in said
    assert said.endswith(f"tailtrain unlock {first.token}")
    assert caught.value.host == primary.host.name
    assert first.held
    first.release()


def test_of_many_at_once_one_gets_it(primary: Primary) -> None:
    locks = [primary.lock(f"plan{number}") for number in range(8)]

    def got(lock: DeployLock) -> bool:
        try:
            lock.require()
        except LockedError:
            return False
        return True

    jobs = [gevent.spawn(got, lock) for lock in locks]
    gevent.joinall(jobs, timeout=30)
    assert sum(job.get() for job in jobs) == 1
    next(lock for lock in locks if lock.held).release()


def test_a_plan_from_before_another_deploy_is_not_carried_out(primary: Primary) -> None:
    early, other = primary.lock("aaaa"), primary.lock("bbbb")
    other.require()
    during = primary.lock("cccc", expected=None)
    other.release()
    for lock in (early, during):
        with pytest.raises(LockedError, match=r"deployed since this plan was made, by .*@") as caught:
            lock.require()
        assert "Run the same command again" in str(caught.value)
    assert primary.observed()["holder"] is None
    late = primary.lock("dddd")
    late.require()
    late.release()


def test_a_killed_holder_is_no_obstacle_and_is_named(primary: Primary) -> None:
    first = primary.lock("aaaa")
    first.require()
    os.kill(primary.pid(), signal.SIGKILL)
    primary.wait_until_free()
    second = primary.lock("bbbb")
    left = second.require()
    assert left is not None
    assert left.startswith(f"{own_name()} is deploying plan aaaa")
    with pytest.raises(LockedError, match="is deploying plan bbbb"):
        first.require()
    second.release()
    with pytest.raises(LockedError, match="somebody deployed since"):
        first.require()


def test_a_holder_that_is_told_to_end_leaves_nothing_behind(primary: Primary) -> None:
    lock = primary.lock()
    lock.require()
    os.kill(primary.pid(), signal.SIGTERM)
    primary.wait_until_free()
    assert primary.files() == ["deploy.lock", "last.json"]


def test_a_cut_connection_frees_it_and_the_same_deploy_takes_it_again(
    over_ssh: Primary, tailnet: Tailnet
) -> None:
    lock = over_ssh.lock()
    lock.require()
    tailnet.servers["qfox"].cut()
    over_ssh.wait_until_free()
    gevent.sleep(0.1)
    assert not lock.held
    assert lock.require() is None
    assert lock.held
    assert over_ssh.observed()["holder"]["token"] == lock.token
    lock.release()


def test_it_is_not_taken_again_where_somebody_deployed_in_between(
    over_ssh: Primary, tailnet: Tailnet
) -> None:
    lock = over_ssh.lock()
    lock.require()
    tailnet.servers["qfox"].cut()
    over_ssh.wait_until_free()
    other = over_ssh.lock("bbbb")
    other.require()
    other.release()
    with pytest.raises(LockedError, match="somebody deployed since"):
        lock.require()


def test_the_same_deploy_ends_its_own_holder_that_the_cut_left_behind(over_ssh: Primary) -> None:
    """The host has not noticed the cut yet when the deploy is back."""
    lock = over_ssh.lock()
    lock.require()
    first = over_ssh.pid()
    lock._holder.kill()  # type: ignore[union-attr]
    other = DeployLock(over_ssh.host, "aaaa", None, folder=over_ssh.folder)
    other._request |= lock._request
    other._taken = True
    other._request["token"] = other.token = lock.token
    assert other.require() is None
    assert over_ssh.pid() != first
    other.release()


def test_a_deploy_that_gives_no_sign_of_life_loses_it(primary: Primary) -> None:
    lock = primary.lock(silence_seconds=0.3)
    lock.require()
    primary.wait_until_free()
    assert lock.require() is None, "nobody else came"
    lock.release()


def test_a_broken_lock_is_free_and_its_deploy_does_not_take_it_again(primary: Primary) -> None:
    lock = primary.lock("aaaa")
    lock.require()
    assert break_lock(primary.host, lock.token, primary.folder).startswith(
        f"{own_name()} is deploying plan aaaa"
    )
    primary.wait_until_free()
    gevent.sleep(0.1)
    assert not lock.held
    with pytest.raises(LockedError, match=f"the deploy lock was broken by {own_name()} at 20"):
        lock.require()
    later = primary.lock("bbbb")
    later.require()
    later.release()


def test_breaking_needs_the_right_token_and_a_lock(primary: Primary) -> None:
    with pytest.raises(FleetError, match="nobody is deploying"):
        break_lock(primary.host, "00000000", primary.folder)
    lock = primary.lock()
    lock.require()
    with pytest.raises(LockedError, match="00000000 is not the lock's token") as caught:
        break_lock(primary.host, "00000000", primary.folder)
    assert lock.token in str(caught.value)
    assert lock.held
    lock.release()


def test_what_comes_from_a_host_cannot_move_a_terminal(primary: Primary) -> None:
    holder = {"token": "ab", "who": "eve\x1b[2J", "since": "now", "plan": "p", "seconds": 3}
    assert "\x1b" not in str(locked(primary.host.name, holder))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3700, "1 h 1 min"), (90000, "1 d 1 h")],
)
def test_lengths_of_time(seconds: float, words: str) -> None:
    assert duration(seconds) == words
