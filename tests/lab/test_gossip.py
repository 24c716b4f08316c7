"""Membership on real hosts: Serf's agents with a key of the fleet's own, looked after like all the rest."""

from __future__ import annotations

import base64
import json
import re
import stat
import time
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.exit_codes import EXIT_CHANGES
from tailtrain.planning import layout
from tests.lab.pair import OTHER, PRIMARY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.pair import Pair

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

HOSTS = (PRIMARY, OTHER)
UNIT = layout.SERF_UNIT
# Serf's own command takes the key from its environment as well, where other accounts do not see it.
MEMBERS = f"""
exec runuser -u {layout.ACCOUNT} -- python3 -c '
import json, os
said = json.load(open("{layout.SERF_CONFIG}"))
os.environ["SERF_RPC_AUTH"] = said["rpc_auth"]
os.execvp("serf", ["serf", "members", "-rpc-addr=127.0.0.1:45004", "-format=json"])
' 2>&1
"""


def members(pair: Pair, host: str) -> dict[str, str]:
    """Whom a host's agent knows, and as what; nobody where it does not answer."""
    said = pair.on(host, f"({MEMBERS}) || true")
    if not said.startswith("{"):
        return {}
    return {each["name"]: each["status"] for each in json.loads(said)["members"]}


def wait_for_all(pair: Pair, seconds: float = 30) -> None:
    """Until all hosts hold each other alive."""
    deadline, everybody = time.monotonic() + seconds, dict.fromkeys(HOSTS, "alive")
    while any((seen := members(pair, host)) != everybody for host in HOSTS):
        assert time.monotonic() < deadline, seen
        time.sleep(0.5)


def provision(pair: Pair) -> str:
    return pair.said(0, "pyinfra", "-y", "inventory.py", "deploys/provision.py")


def to_provision(pair: Pair) -> dict[str, list[str]]:
    """What a plan would do to prepare each host; nothing else is looked at, as nobody trains here."""
    done = pair.run("tailtrain", "plan", "--json")
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return {
        host["name"]: found
        for host in document["hosts"]
        if (found := [each["what"] for each in host["actions"] if each["phase"] == "provision"])
    }


def key_file(pair: Pair) -> Path:
    return pair.folder / ".tailtrain" / "keys" / "gossip.key"


def declare(pair: Pair, protocol: str) -> None:
    path = pair.folder / "group_data" / "all.py"
    text, count = re.subn(
        r"(?m)^coordination_protocol = .*$", f'coordination_protocol = "{protocol}"', path.read_text()
    )
    assert count == 1
    path.write_text(text)


@pytest.fixture(scope="module")
def gossiping(pair: Pair) -> Iterator[Pair]:
    """Two hosts whose membership Serf holds; afterwards they are as they were."""
    declare(pair, "eneGossip")
    provision(pair)
    yield pair
    declare(pair, "decentralized")
    if pair.on(PRIMARY, f"ls {layout.SERF_CONFIG} 2>/dev/null; true"):
        provision(pair)


def test_all_hosts_see_each_other_and_nothing_is_left_to_do(gossiping: Pair) -> None:
    wait_for_all(gossiping)
    assert to_provision(gossiping) == {}
    assert gossiping.said(0, "tailtrain", "status").count("2 of 2") == len(HOSTS)


def test_the_key_is_where_it_must_be_and_nowhere_else(gossiping: Pair) -> None:
    kept = key_file(gossiping)
    key = kept.read_bytes()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    secrets = {base64.b64encode(key).decode(), key.hex()}
    for host in HOSTS:
        for path in (layout.SERF_CONFIG, layout.SERF_KEYRING):
            assert gossiping.on(host, f"stat -c '%a %U:%G' {path}").strip() == "600 tailtrain:tailtrain"
        secrets.add(json.loads(gossiping.on(host, f"cat {layout.SERF_CONFIG}"))["rpc_auth"])
    pattern = "\n".join(sorted(secrets))
    for host in HOSTS:
        script = (
            "grep -rlF -f - /etc /var/lib/tailtrain /opt/tailtrain /run /tmp --exclude-dir=env 2>/dev/null"
            f" <<'END' | sort; true\n{pattern}\nEND"
        )
        assert gossiping.on(host, script).split() == [layout.SERF_CONFIG, layout.SERF_KEYRING]
        said = gossiping.on(host, "journalctl --no-pager -o cat; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert "Node name" in said
        assert not [secret for secret in secrets if secret in said]
    texts = {path: path.read_bytes() for path in gossiping.folder.rglob("*") if path.is_file()}
    hidden = [*(secret.encode() for secret in secrets), key]
    assert [path for path, text in texts.items() if any(secret in text for secret in hidden)] == [kept]
    # Something to say about each file, and with all that is said about it.
    gossiping.on(OTHER, f"rm {layout.SERF_CONFIG} {layout.SERF_KEYRING}")
    plan = gossiping.run("tailtrain", "plan", "--diff")
    document = gossiping.run("tailtrain", "plan", "--json")
    deploy = provision(gossiping)
    for text in (plan.stdout + plan.stderr, document.stdout, deploy):
        assert "write the gossip key and Serf's configuration" in text.replace("\n    ", " ")
        assert not [secret for secret in secrets if secret in text]


def test_what_somebody_changed_is_drift_and_put_right(gossiping: Pair) -> None:
    """A file on one host; on the other one Debian's own unit, which stops ours where it starts."""
    before = gossiping.on(OTHER, f"sha256sum < {layout.SERF_CONFIG}")
    gossiping.on(OTHER, f"sed -i s/lan/wan/ {layout.SERF_CONFIG} && chmod 644 {layout.SERF_CONFIG}")
    gossiping.on(PRIMARY, "systemctl unmask serf.service && systemctl start serf.service")
    done = gossiping.run("tailtrain", "plan")
    said = done.stdout + done.stderr
    assert done.returncode == EXIT_CHANGES
    assert f"{OTHER}: {layout.SERF_CONFIG}" in said
    assert f"{PRIMARY}: serf.service" in said
    assert "mask Debian's own serf.service (it runs, without a key" in said
    assert "restart membership (its configuration or unit changes)" in said
    assert "start membership (not running)" in said
    provision(gossiping)
    assert gossiping.on(OTHER, f"sha256sum < {layout.SERF_CONFIG}") == before
    assert gossiping.on(OTHER, f"stat -c '%a' {layout.SERF_CONFIG}").strip() == "600"
    shown = gossiping.on(PRIMARY, "systemctl show -p LoadState,ActiveState serf.service").split()
    assert sorted(shown) == ["ActiveState=inactive", "LoadState=masked"]
    wait_for_all(gossiping)


def test_another_control_machine_takes_the_key_from_the_primary(gossiping: Pair) -> None:
    kept = key_file(gossiping)
    key = kept.read_bytes()
    kept.unlink()
    assert to_provision(gossiping) == {}
    assert kept.read_bytes() == key


def test_a_new_key_reaches_all_and_their_agents_are_restarted(gossiping: Pair) -> None:
    key_file(gossiping).write_bytes(bytes(range(32)))
    provision(gossiping)
    wait_for_all(gossiping)
    assert to_provision(gossiping) == {}


def test_an_agent_that_is_killed_is_back_by_itself(gossiping: Pair) -> None:
    pid = gossiping.on(OTHER, f"systemctl show -p MainPID --value {UNIT}").strip()
    gossiping.on(OTHER, f"kill -9 {pid}")
    deadline = time.monotonic() + 30
    while gossiping.on(OTHER, f"systemctl show -p MainPID --value {UNIT}").strip() in (pid, "0"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    wait_for_all(gossiping)


def test_another_protocol_removes_all_of_it(gossiping: Pair) -> None:
    declare(gossiping, "decentralized")
    what = "leave and remove membership: Serf's unit, configuration and key"
    assert {name: what in said for name, said in to_provision(gossiping).items()} == dict.fromkeys(
        HOSTS, True
    )
    provision(gossiping)
    for host in HOSTS:
        places = (
            f"{layout.SERF_CONFIG} {layout.SERF_KEYRING} {layout.SERF_SNAPSHOT} /etc/systemd/system/*serf*"
        )
        assert gossiping.on(host, f"ls {places} 2>/dev/null; true") == ""
        assert gossiping.on(host, "pgrep -x serf; true") == ""
        states = gossiping.on(host, "systemctl show -p LoadState,UnitFileState serf.service").split()
        assert sorted(states) == ["LoadState=loaded", "UnitFileState=disabled"]
    assert to_provision(gossiping) == {}
