"""What hosts are to do about Serf: its key, its agent and Debian's own unit, and in which words."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.documents.plan import encode
from tailtrain.planning.observed import UnitState
from tailtrain.planning.rendering.plan import render_plan
from tailtrain.planning.serf_config import rpc_key
from tests.plans import situations
from tests.plans.situations import GOSSIP_KEY, NAMES, PRIMARY, SEVENTH, Situation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.planning.serf_plan import SerfPlan

UNIT_PATH = f"{layout.UNIT_DIR}/{layout.SERF_UNIT}"
PROVISION = ("mask", "packages", "gossip", "files", "agent", "retire")
NEW_KEY = bytes(range(1, 33))


def gossiping(**settings: object) -> Situation:
    return Situation().with_settings(coordination_protocol="eneGossip", **settings)


def done(situation: Situation, name: str) -> dict[str, tuple[str, str]]:
    """What is done about Serf on a host, by key."""
    actions = situation.plan().host(name).actions
    return {each.key: (each.what, each.why) for each in actions if each.key in PROVISION}


def agent_of(situation: Situation, name: str) -> SerfPlan:
    found = situation.plan().host(name).serf
    assert found is not None
    return found


def test_a_fleet_gets_agents_once() -> None:
    found = done(gossiping().on("judge", missing_packages=("serf",)), "judge")
    assert found["mask"] == ("mask Debian's own serf.service", "not masked")
    assert found["packages"] == ("install serf", "not installed")
    assert found["gossip"] == (
        "write the gossip key and Serf's configuration, for the worker alone",
        "not there",
    )
    assert layout.SERF_UNIT in found["files"][0]
    assert found["agent"] == ("start membership", "not running")
    assert not gossiping().applied().plan().changes


@pytest.mark.parametrize("protocol", ["decentralized", "centralized"])
def test_without_gossip_nothing_of_it_comes_near_a_host(protocol: str) -> None:
    situation = Situation().with_settings(coordination_protocol=protocol)
    situation.on("judge", missing_packages=("serf",), units={"serf.service": UnitState("active")})
    assert done(situation, "judge").keys() == {"files"}
    plan = situation.plan().host("judge")
    assert plan.missing_packages == ()
    assert not [change.path for change in plan.files if "serf" in change.path]
    assert not situation.applied().plan().changes


def test_an_agent_is_told_of_all_others_and_what_its_node_is() -> None:
    config, keyring = agent_of(gossiping(engine={"gossip_port": 46_003}), PRIMARY).files
    said = json.loads(config.content)
    assert (said["node_name"], said["bind"]) == (PRIMARY, "100.64.0.2:46003")
    assert said["retry_join"] == [f"100.64.0.{number}:46003" for number in range(3, 8)]
    assert said["tags"] == {"role": "primary", "cores": "16", "gpu": "1"}
    assert said["rpc_auth"] == rpc_key(GOSSIP_KEY, PRIMARY)
    assert said["snapshot_path"].startswith(f"{layout.STATE_DIR}/")
    assert json.loads(keyring.content) == [base64.b64encode(GOSSIP_KEY).decode()]


def test_the_key_is_in_no_word_of_a_plan() -> None:
    plan = gossiping().plan()
    document = document_of(plan, diffs=True)
    texts = [repr(plan), render_plan(document, diff=True), encode(document).decode()]
    texts += [str(host.receipt) for host in plan.hosts]
    secrets = [base64.b64encode(GOSSIP_KEY).decode(), GOSSIP_KEY.hex(), repr(GOSSIP_KEY)[2:-1]]
    secrets += [rpc_key(GOSSIP_KEY, name) for name in NAMES]
    assert not [secret for secret in secrets for text in texts if secret in text]


def test_a_key_of_another_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(situations, "GOSSIP_KEY", b"short")
    with pytest.raises(DeclarationError, match="found 5 bytes, expected 32 bytes"):
        gossiping().plan()


def test_a_new_key_restarts_agents_and_those_who_talk_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    situation = gossiping().applied(state="training", unit="active")
    monkeypatch.setattr(situations, "GOSSIP_KEY", NEW_KEY)
    plan = situation.plan()
    for host in plan.hosts:
        found = {action.key: action.why for action in host.actions}
        assert found["gossip"] == "differ, or their permissions do"
        assert found["agent"] == "its configuration or unit changes"
        assert found["restart"] == "the fleet's gossip key changes"
        assert [change.path for change in host.files] == [UNIT_PATH]


AMISS: dict[str, tuple[Callable[[Situation], object], dict[str, str]]] = {
    "a file is gone": (
        lambda s: s.on("judge", secrets=dict(list(s.answer("judge").secrets.items())[:1])),
        {"gossip": "differ, or their permissions do", "agent": "its configuration or unit changes"},
    ),
    "a file is open to others": (
        lambda s: s.on(
            "judge",
            secrets={
                path: found.replace("0600", "0644") for path, found in s.answer("judge").secrets.items()
            },
        ),
        {"gossip": "differ, or their permissions do", "agent": "its configuration or unit changes"},
    ),
    "the unit is another": (
        lambda s: s.on("judge", files={**s.answer("judge").files, UNIT_PATH: "[Unit]\n"}),
        {"files": "differs", "agent": "its configuration or unit changes"},
    ),
    "the agent does not run": (
        lambda s: s.unit("judge", "failed", layout.SERF_UNIT),
        {"agent": "not running"},
    ),
    "the agent runs with what was there before": (
        lambda s: s.unit("judge", "active", layout.SERF_UNIT, applied="0" * 16),
        {"agent": "runs with another configuration"},
    ),
    "the agent would not start at a boot": (
        lambda s: s.unit("judge", "active", layout.SERF_UNIT, enabled=False),
        {"agent": "would not, after a boot"},
    ),
    "Debian's unit runs": (
        lambda s: s.unit("judge", "active", layout.DEBIAN_SERF_UNIT, masked=False),
        {"mask": "it runs, without a key and on all addresses"},
    ),
}


@pytest.mark.parametrize("case", AMISS)
def test_what_is_amiss_is_put_right_there_alone(case: str) -> None:
    change, expected = AMISS[case]
    situation = gossiping().applied(state="training", unit="active")
    change(situation)
    assert {key: why for key, (_, why) in done(situation, "judge").items()} == expected
    plan = situation.plan()
    # Nobody's training is interrupted for it.
    assert not any(host.does("restart") for host in plan.hosts)
    assert all(done(situation, name) == {} for name in NAMES if name != "judge")


DRIFTED: dict[str, tuple[Callable[[Situation], object], tuple[str, str, str]]] = {
    "a file": (
        lambda s: s.on(
            "judge",
            secrets={
                **s.answer("judge").secrets,
                layout.SERF_CONFIG: f"{'e' * 64} 0600 tailtrain:tailtrain",
            },
            modified={layout.SERF_CONFIG: "2026-11-02 09:30 UTC"},
        ),
        (layout.SERF_CONFIG, "eeeeeeeeeeee, written 2026-11-02 09:30 UTC", ""),
    ),
    "permissions": (
        lambda s: s.on(
            "judge",
            secrets={
                **s.answer("judge").secrets,
                layout.SERF_KEYRING: s.answer("judge")
                .secrets[layout.SERF_KEYRING]
                .replace("0600 t", "0644 t"),
            },
        ),
        (layout.SERF_KEYRING, "0644 tailtrain:tailtrain", layout.SECRET_MODE),
    ),
    "no file": (lambda s: s.on("judge", secrets={}), (layout.SERF_CONFIG, "missing", "")),
    "the agent": (
        lambda s: s.unit("judge", "inactive", layout.SERF_UNIT),
        (layout.SERF_UNIT, "inactive", "running"),
    ),
    "Debian's unit": (
        lambda s: s.unit("judge", "active", layout.DEBIAN_SERF_UNIT, masked=False),
        (layout.DEBIAN_SERF_UNIT, "running", "masked"),
    ),
}


@pytest.mark.parametrize("case", DRIFTED)
def test_what_somebody_else_changed_is_drift(case: str) -> None:
    change, (subject, found, wanted) = DRIFTED[case]
    situation = gossiping().applied()
    assert not situation.plan().host("judge").drift
    change(situation)
    drift = situation.plan().host("judge").drift[0]
    assert (drift.subject, drift.found) == (subject, found)
    if wanted:
        assert drift.wanted == wanted
    else:
        assert drift.receipt.startswith(f"{drift.wanted}, applied 2026-11-01")


def test_another_protocol_removes_the_agent_and_all_that_it_has() -> None:
    situation = gossiping().applied().with_settings(coordination_protocol="decentralized")
    expected = (
        "leave and remove membership: Serf's unit, configuration and key",
        "decentralized needs none",
    )
    assert {done(situation, name)["retire"] for name in NAMES} == {expected}
    receipt = situation.plan().host("judge").require_receipt()
    assert not [path for path in receipt.files if "serf" in path]
    # Interrupted halfway, the rest of it is still to be removed.
    for name in NAMES:
        situation.on(name, secrets={})
    assert "retire" in done(situation, "judge")


def test_one_node_more_is_told_to_every_agent_and_one_that_is_away_changes_nobody_s() -> None:
    situation = gossiping().applied()
    agent = agent_of(situation, "judge")
    assert agent_of(gossiping().applied().unreachable(PRIMARY, "no answer"), "judge") == agent
    situation.add(SEVENTH)
    assert done(situation, "judge").keys() == {"gossip", "files", "agent"}
