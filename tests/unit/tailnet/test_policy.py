"""The rules that a fleet needs of the tailnet's policy: what they say, and how they are checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import DaemonError, TailnetError
from tailtrain.tailnet.admin import AdminApi
from tailtrain.tailnet.credentials import Credentials
from tailtrain.tailnet.netmap import parse_status
from tailtrain.tailnet.owners import Identity, identity_of, logins_of
from tailtrain.tailnet.policy import TEMPLATE, PolicyNeeds, PolicyNode, policy_text
from tailtrain.tailnet.policy_check import Access, check_policy, merged, parse_hujson
from tests.plans.situations import PROJECT
from tests.unit.tailnet.admin_documents import API_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.tailnet.admin_stand_in import AdminStandIn

TEXT = (PROJECT / "templates" / TEMPLATE).read_text()
RUNNING = (PROJECT / "tests/unit/tailnet/data/running.json").read_text()
ALICE, BOB = Identity("alice@example.com"), Identity("bob@example.com")
TRAIN, GPU = Identity("tag:train"), Identity("tag:gpu")
BETWEEN_NODES = ["tag:train:45001", "tag:train:45002", "tag:gpu:45001", "tag:gpu:45002"]


def needs(source: Identity, *nodes: tuple[Identity, str | None], **ports: int) -> PolicyNeeds:
    """A fleet whose nodes are n0, n1 and so on, each with its owner and its login user."""
    made = [
        PolicyNode(f"n{place}", f"100.64.0.{place}", identity, user)
        for place, (identity, user) in enumerate(nodes)
    ]
    return PolicyNeeds("laptop", source, made, 45_001, 45_002, **ports)


def rules(wanted: PolicyNeeds) -> dict[str, Any]:
    return parse_hujson(policy_text(wanted, TEXT), "the rules")


def test_tagged_nodes_and_a_persons_machine() -> None:
    found = rules(needs(ALICE, (TRAIN, "root"), (TRAIN, "deploy"), (GPU, "root")))
    assert found == {
        "tagOwners": {"tag:gpu": ["autogroup:admin"], "tag:train": ["autogroup:admin"]},
        "grants": [
            {"src": [ALICE.name], "dst": ["tag:gpu", "tag:train"], "ip": ["tcp:22"]},
            {
                "src": ["tag:gpu", "tag:train"],
                "dst": ["tag:gpu", "tag:train"],
                "ip": ["tcp:45001", "tcp:45002"],
            },
        ],
        "ssh": [
            {"action": "accept", "src": [ALICE.name], "dst": ["tag:gpu"], "users": ["root"]},
            {"action": "accept", "src": [ALICE.name], "dst": ["tag:train"], "users": ["root", "deploy"]},
        ],
        "tests": [
            {"src": ALICE.name, "accept": ["tag:train:22", "tag:gpu:22"]},
            {"src": "tag:gpu", "accept": BETWEEN_NODES},
            {"src": "tag:train", "accept": BETWEEN_NODES},
        ],
        "sshTests": [
            {"src": ALICE.name, "dst": ["tag:gpu"], "accept": ["root"]},
            {"src": ALICE.name, "dst": ["tag:train"], "accept": ["root", "deploy"]},
        ],
    }


def between_nodes(found: dict[str, Any]) -> list[list[str]]:
    return [grant["ip"] for grant in found["grants"] if grant["src"] == ["tag:train"]]


def test_gossip_passes_by_both_protocols() -> None:
    wanted = needs(ALICE, (TRAIN, "root"), gossip_port=45_003)
    found = rules(wanted)
    assert between_nodes(found) == [["tcp:45001", "tcp:45002"], ["tcp:45003", "udp:45003"]]
    assert found["tests"][1:] == [
        {"src": "tag:train", "accept": ["tag:train:45001", "tag:train:45002", "tag:train:45003"]},
        # Without a protocol a test is content with either of them.
        {"src": "tag:train", "proto": "udp", "accept": ["tag:train:45003"]},
    ]
    assert wanted.targets[-1] == "100.64.0.0:45003"


def test_a_divided_model_needs_all_ports_and_the_rules_say_why() -> None:
    wanted = needs(ALICE, (TRAIN, "root"), beacon_port=45_005)
    assert between_nodes(rules(wanted)) == [["tcp:45001", "tcp:45002"], ["tcp:*"]]
    text = policy_text(wanted, TEXT)
    assert "say on port 45005 that they are alive" in text
    assert "ports that the system chooses" in text
    # A port of none is asked for; one that is known stands for them.
    assert rules(wanted)["tests"][1]["accept"][-1] == "tag:train:45005"


def test_one_persons_machines() -> None:
    """Tests name addresses: a user's machines are more than the fleet."""
    found = rules(needs(ALICE, (ALICE, "root"), (ALICE, "root")))
    assert "tagOwners" not in found
    assert found["ssh"] == [
        {"action": "accept", "src": [ALICE.name], "dst": ["autogroup:self"], "users": ["root"]}
    ]
    assert found["tests"][0] == {"src": ALICE.name, "accept": ["100.64.0.0:22", "100.64.0.1:22"]}
    assert "sshTests" not in found


def test_another_persons_machine_cannot_be_logged_in_to() -> None:
    """https://tailscale.com/kb/1337/policy-syntax: users in dst are only allowed from the same user."""
    wanted = needs(ALICE, (TRAIN, "root"), (BOB, "root"))
    assert [node.name for node in wanted.out_of_reach] == ["n1"]
    found = rules(wanted)
    assert [rule["dst"] for rule in found["ssh"]] == [["tag:train"]]
    # Its worker is one of the fleet all the same.
    assert BOB.name in found["grants"][1]["dst"]
    assert [node.name for node in needs(TRAIN, (ALICE, "root")).out_of_reach] == ["n0"]


def test_a_machine_does_not_log_in_to_itself() -> None:
    wanted = needs(TRAIN, (TRAIN, None), (TRAIN, "root"))
    assert wanted.targets == (
        *("100.64.0.0:45001", "100.64.0.0:45002"),
        *("100.64.0.1:22", "100.64.0.1:45001", "100.64.0.1:45002"),
    )
    assert wanted.out_of_reach == ()
    alone = rules(needs(ALICE, (ALICE, None)))
    assert alone["ssh"] == []
    assert alone["tests"] == [{"src": ALICE.name, "accept": ["100.64.0.0:45001", "100.64.0.0:45002"]}]


def test_owners_are_read_from_the_daemon() -> None:
    status = json.loads(RUNNING)
    judge = next(peer for peer in status["Peer"].values() if peer["HostName"] == "judge")
    judge["Tags"] = ["tag:train", "tag:apart"]
    seen, logins = parse_status(json.dumps(status)), logins_of(json.dumps(status))
    assert identity_of(seen.me, logins, "tag:train") == Identity("user-123@fake-control.example.net")
    assert identity_of(seen.find("judge"), logins, "tag:train") == TRAIN
    assert identity_of(seen.find("judge"), logins, "tag:other") == Identity("tag:apart")
    with pytest.raises(DaemonError, match="qfox: the Tailscale daemon does not say whose machine"):
        identity_of(seen.find("qfox"), {}, "tag:train")
    with pytest.raises(DaemonError, match="cannot be read"):
        logins_of("{")
    assert logins_of("{}") == {}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BETWEEN = st.sampled_from(["", " ", "\n", '// a "comment", }\n', "/* [1, */", "/* // */\n"])


@given(policy=st.dictionaries(st.text(), PLAIN, max_size=4), gaps=st.lists(BETWEEN, min_size=1))
def test_comments_and_last_commas_are_no_part_of_a_policy(
    policy: dict[str, Any], gaps: Sequence[str]
) -> None:
    """Signs of structure get comments around them, and ends of lists a comma; strings stay as they are."""
    written = json.dumps(policy)
    text, inside, escaped, turn = "", False, False, 0
    for sign in written:
        inside = inside != (sign == '"' and not escaped)
        escaped = inside and sign == "\\" and not escaped
        if not inside and sign in "{}[],:":
            gap = gaps[turn % len(gaps)]
            turn += 1
            comma = "," if sign in "}]" and text.rstrip()[-1:] not in "[{," and "//" not in gap else ""
            text += f"{comma}{gap}{sign}{gap}"
        else:
            text += sign
    assert parse_hujson(text, "it") == policy


@pytest.mark.parametrize("text", ["", "[]", '{"a": }', "{/* no end", '"text"'])
def test_what_is_no_policy_is_said(text: str) -> None:
    with pytest.raises(TailnetError, match="the tailnet's policy cannot be read"):
        parse_hujson(text, "the tailnet's policy")


def test_merging_takes_nothing_away_and_doubles_nothing() -> None:
    policy = {
        "tagOwners": {"tag:train": ["group:dev"]},
        "acls": [{"action": "accept"}],
        "ssh": [{"action": "check"}],
    }
    wanted = rules(needs(ALICE, (TRAIN, "root")))
    once = merged(policy, wanted)
    assert once["tagOwners"] == {"tag:train": ["group:dev"]}
    assert once["acls"] == [{"action": "accept"}]
    assert once["ssh"] == [{"action": "check"}, *wanted["ssh"]]
    assert merged(once, wanted) == once


@pytest.fixture
def api(admin_stand_in: AdminStandIn) -> AdminApi:
    return AdminApi(Credentials("-", api_key=API_KEY), connect=admin_stand_in.connect)


def failed(*errors: str) -> dict[str, Any]:
    return {"message": "test(s) failed", "data": [{"user": "tag:train", "errors": list(errors)}]}


def test_a_policy_that_lacks_nothing(api: AdminApi, admin_stand_in: AdminStandIn) -> None:
    wanted = needs(ALICE, (TRAIN, "root"))
    admin_stand_in.behave(policy='{\n  // all\n  "grants": [{"src": ["*"], "dst": ["*"], "ip": ["*"]},],\n}')
    rule = {"users": ["alice@example.com", "*"], "ports": ["*:22"], "lineNumber": 3}
    admin_stand_in.behave(previews={"100.64.0.0:22": [rule, rule]})
    verdict = check_policy(api, policy_text(wanted, TEXT), wanted.targets)
    assert verdict.lacking == ()
    assert verdict.access == (
        Access("100.64.0.0:22", ("alice@example.com", "*")),
        Access("100.64.0.0:45001", ()),
        Access("100.64.0.0:45002", ()),
    )
    # Asked with the tests alone: were the rules in it, everything would be allowed.
    asked = [json.loads(one.body) for one in admin_stand_in.asked if one.path.endswith("/validate")]
    assert [sorted(one) for one in asked] == [["grants", "sshTests", "tests"]]
    assert len(asked[0]["grants"]) == 1
    # Nothing was saved.
    assert not [one for one in admin_stand_in.asked if (one.method, one.path[-4:]) == ("POST", "/acl")]


def test_a_policy_that_lacks_something(api: AdminApi, admin_stand_in: AdminStandIn) -> None:
    wanted = needs(ALICE, (TRAIN, "root"))
    admin_stand_in.behave(validation=[failed('address "tag:train:45001": want: Accept, got: Drop')])
    verdict = check_policy(api, policy_text(wanted, TEXT), wanted.targets)
    assert verdict.lacking == ('tag:train: address "tag:train:45001": want: Accept, got: Drop',)
    assert verdict.wrong == ()
    assert len(verdict.access) == 3
    previewed = json.loads(admin_stand_in.asked[-1].body)
    assert previewed["acls"]
    assert previewed["ssh"][0]["dst"] == ["tag:train"]


def test_a_policy_that_is_wrong_even_with_the_rules(api: AdminApi, admin_stand_in: AdminStandIn) -> None:
    wanted = needs(ALICE, (TRAIN, "root"))
    admin_stand_in.behave(validation=[failed("one"), failed("one", "another")])
    verdict = check_policy(api, policy_text(wanted, TEXT), wanted.targets)
    assert verdict.wrong == ("tag:train: one", "tag:train: another")
    assert verdict.access == ()
