"""State in, commands out: what each operation gives pyinfra to do, on which hosts."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api import Inventory, State
from pyinfra.context import ctx_host, ctx_state

from tailtrain.errors import FleetError
from tailtrain.fleet import distribution, material, operations, serf, session
from tailtrain.fleet.steps import step
from tailtrain.planning import layout
from tailtrain.planning.environment import build_commands
from tests.plans.situations import NAMES, PRIMARY, PROJECT, SEVENTH, Situation

if TYPE_CHECKING:
    from collections.abc import Callable

COMPUTE = set(NAMES) - {PRIMARY}
OPERATIONS = (
    *("account", "environment", "code", "identity", "credentials", "files", "serve"),
    *("upload", "chunks", "copies", "start", "train", "aggregate", "model", "validate", "judge"),
)


MODULES = {
    **dict.fromkeys(("upload", "chunks", "copies"), distribution),
    **dict.fromkeys(("mask", "secrets", "agent", "retire"), serf),
}


def commands_of(situation: Situation, operation: str) -> dict[str, list[Any]]:
    """What an operation yields on each host, when it is made for this situation's plan."""
    state = State(check_for_changes=False)
    state.inventory = Inventory((list(situation.observed), {}))
    session._sessions[state] = session.Session(
        project=PROJECT,
        declared=situation.declared(),
        bundle=material.bundle(PROJECT, None, None),
        observed=situation.observed,
        plan=situation.plan(),
        identities={},
    )
    module = MODULES.get(operation, operations)
    found = {}
    with ctx_state.use(state):
        for host in state.inventory:
            with ctx_host.use(host):
                found[host.name] = list(getattr(module, operation)._inner())
    return found


def busy(situation: Situation, operation: str) -> set[str]:
    return {name for name, commands in commands_of(situation, operation).items() if commands}


def test_the_account_is_made_before_its_folders() -> None:
    create = (
        "useradd --system --user-group --home-dir /var/lib/tailtrain --no-create-home"
        " --shell /usr/sbin/nologin tailtrain"
    )
    for commands in commands_of(Situation(), "account").values():
        account, _ = commands
        assert account.get_raw_value() == f"getent passwd tailtrain >/dev/null || {create}"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_is_done_where_nothing_is_planned(operation: str) -> None:
    assert busy(Situation().applied(), operation) == set()


@pytest.mark.parametrize(
    ("operation", "hosts"),
    [
        *((name, set(NAMES)) for name in ("account", "environment", "code", "identity", "files", "serve")),
        *((name, set(NAMES)) for name in ("chunks", "copies", "start", "validate")),
        *((name, set()) for name in ("credentials", "upload")),
        *((name, {PRIMARY}) for name in ("train", "aggregate", "judge")),
        ("model", COMPUTE),
    ],
)
def test_a_fresh_fleet_does_all_of_it_each_where_it_belongs(operation: str, hosts: set[str]) -> None:
    assert busy(Situation(), operation) == hosts


@pytest.mark.parametrize(
    ("operation", "hosts"),
    [("credentials", set(NAMES)), ("upload", {PRIMARY}), ("chunks", set(NAMES)), ("copies", set())],
)
def test_with_a_backend_one_fills_it_and_all_fetch(operation: str, hosts: set[str]) -> None:
    assert busy(Situation().stored("s3", uploads={"a pack": 9}), operation) == hosts


def test_a_restart_is_a_start() -> None:
    situation = Situation().applied(state="training", unit="active").add(SEVENTH)
    plan = situation.plan()
    assert plan.primary.does("restart")
    assert plan.host(SEVENTH.hostname).does("start")
    assert busy(situation, "start") == {*NAMES, SEVENTH.hostname}


@pytest.mark.parametrize(
    ("change", "operation"),
    [
        (lambda s: s.on("judge", account=False), "account"),
        (lambda s: s.on("judge", environments=frozenset()), "environment"),
        (lambda s: s.on("judge", codes=frozenset()), "code"),
        (lambda s: s.on("judge", peer_id=None), "identity"),
        (lambda s: s.on("judge", files={}), "files"),
        (lambda s: s.on("judge", chunks=frozenset()), "chunks"),
        (lambda s: s.on("judge", manifests=frozenset()), "chunks"),
        (lambda s: s.on("judge", credentials="an old one 0600 tailtrain:tailtrain"), "credentials"),
        (lambda s: s.unit("judge", "inactive", layout.CHUNKS_UNIT), "serve"),
        (lambda s: s.on("judge", secrets={layout.SERF_CONFIG: "some 0600 tailtrain:tailtrain"}), "retire"),
    ],
)
def test_what_is_amiss_on_one_host_is_done_there_alone(
    change: Callable[[Situation], Situation], operation: str
) -> None:
    assert busy(change(Situation().applied()), operation) == {"judge"}


@pytest.mark.parametrize(
    ("change", "operations"),
    [
        (lambda s: s.unit("judge", "inactive", layout.DEBIAN_SERF_UNIT), {"mask"}),
        (lambda s: s.on("judge", secrets={}), {"secrets", "agent"}),
        (lambda s: s.unit("judge", "inactive", layout.SERF_UNIT), {"agent"}),
    ],
)
def test_what_is_amiss_with_membership_on_one_host_is_done_there_alone(
    change: Callable[[Situation], Situation], operations: set[str]
) -> None:
    situation = change(Situation().with_settings(coordination_protocol="eneGossip").applied())
    every = ("mask", "secrets", "agent", "retire")
    found = {name: busy(situation, name) for name in every}
    assert found == {name: {"judge"} if name in operations else set() for name in every}


def test_debian_s_unit_is_masked_before_its_package_comes() -> None:
    text = (PROJECT / "deploys" / "provision.py").read_text()
    places = [text.index(f'anywhere("{key}")') for key in ("mask", "packages", "gossip", "files", "agent")]
    assert places == sorted(places)


def test_stopping_asks_no_plan() -> None:
    for commands in commands_of(Situation().applied(), "stop").values():
        assert len(commands) == 1


def test_the_environment_is_built_from_hashes_alone() -> None:
    pip = ("/e/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes")
    rest = ("--requirement", "/l")
    assert build_commands("/e", "/l") == (
        ("rm", "-rf", "/e"),
        ("python3", "-m", "venv", "/e"),
        (*pip, *rest),
        ("touch", "/e/.complete"),
    )
    assert build_commands("/e", "/l", wheels="/w")[2] == (*pip, "--no-index", "--find-links", "/w", *rest)
    assert build_commands("/e", "/l", package_index="https://i")[2] == (
        *pip,
        *("--extra-index-url", "https://i"),
        *rest,
    )


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(environment=words, lock=words, source=words)
def test_no_name_can_break_out_of_its_place_in_a_command(environment: str, lock: str, source: str) -> None:
    for options in ({"wheels": source}, {"package_index": source}):
        commands = build_commands(environment, lock, **options)
        line = " && ".join(map(shlex.join, commands))
        assert shlex.split(line) == [word for command in commands for word in (*command, "&&")][:-1]


def test_an_error_of_ours_fails_the_host_with_one_line() -> None:
    said: list[str] = []
    kept: dict[str, Any] = {}
    host = SimpleNamespace(name="judge", log_styled=lambda text, **_: said.append(text), connector_data=kept)

    def fail(_: Any) -> None:
        raise FleetError("could not do it", host="judge", found="nothing")

    command = step(fail)
    assert command.function(state=None, host=host) is False
    assert said == ["could not do it (found nothing)"]
    assert kept == {"failure": said[0]}, "for the results"
    assert step(lambda _: None).function(state=None, host=host) is True


def test_a_command_of_the_worker_runs_as_its_account_outside_its_unit() -> None:
    situation = Situation()
    now = session.Session(
        project=PROJECT,
        declared=situation.declared(),
        bundle=material.bundle(PROJECT, None, None),
        observed=situation.observed,
        plan=situation.plan(),
        identities={},
    )
    command = now.worker_command("judge", "aggregate")
    assert command[:4] == ["runuser", "-u", "tailtrain", "--"]
    assert command[-5:] == ["-m", "tailtrain.worker", "aggregate", "--config", "/etc/tailtrain/worker.json"]
