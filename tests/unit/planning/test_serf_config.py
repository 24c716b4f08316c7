"""The Serf agent's configuration, keyring and unit."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import jinja2
import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.serf_config import KEY_BYTES, agent_config, keyring, rpc_key
from tests.plans.situations import PROJECT
from tests.unit.planning.test_units import HARDENING

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(range(KEY_BYTES))
UNIT = "tailtrain-serf.service"
PEERS = ["100.64.0.2", "100.64.0.3"]


def config(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "node": "architect",
        "address": "100.64.0.3",
        "others": ["100.64.0.5", "100.64.0.2"],
        "tags": {"role": "compute", "cores": "4"},
        "key": KEY,
        "keyring_path": "/etc/tailtrain/serf-keyring.json",
        "snapshot_path": "/var/lib/tailtrain/serf.snapshot",
    }
    return agent_config(**{**values, **changes})


def unit() -> str:
    text = (PROJECT / "templates" / f"{UNIT}.j2").read_text()
    template = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    ).from_string(text)
    return template.render(
        serf_config="/etc/tailtrain/serf.json",
        serf_digest="0123456789abcdef",
        account=layout.ACCOUNT,
        state_dir=layout.STATE_DIR,
        peers=PEERS,
    )


def test_gossip_is_on_the_tailnet_address_alone_and_rpc_on_loopback_behind_a_key() -> None:
    said = config()
    assert said["bind"] == "100.64.0.3:45003"
    assert said["rpc_addr"] == "127.0.0.1:45004"
    assert said["rpc_auth"] == rpc_key(KEY, "architect")
    assert said["retry_join"] == ["100.64.0.2:45003", "100.64.0.5:45003"]
    assert said == config(others=["100.64.0.2", "100.64.0.5"], tags={"cores": "4", "role": "compute"})


def test_the_fleets_key_is_in_the_keyring_alone() -> None:
    assert [b64decode(key) for key in json.loads(keyring(KEY))] == [KEY]
    text = json.dumps(config())
    assert KEY.hex() not in text
    assert json.loads(keyring(KEY))[0] not in text
    assert rpc_key(KEY, "architect") != rpc_key(KEY, "qfox")
    with pytest.raises(DeclarationError) as caught:
        keyring(b"short secret")
    assert "secret" not in str(caught.value)


def test_the_unit_shuts_the_agent_in() -> None:
    settings: dict[str, str] = {}
    for line in unit().splitlines():
        if line and not line.startswith(("[", "#")):
            name, _, value = line.partition("=")
            settings[name] = value
    assert {name: settings.get(name) for name in HARDENING} == HARDENING
    assert settings["IPAddressDeny"] == "any"
    assert settings["IPAddressAllow"] == "localhost 100.64.0.2 100.64.0.3"
    assert settings["Conflicts"] == "serf.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_can_read_the_unit(tmp_path: Path) -> None:
    path = tmp_path / UNIT
    path.write_text(unit().replace("/usr/bin/serf", "/bin/true"))
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    assert UNIT not in found.stderr, found.stderr
