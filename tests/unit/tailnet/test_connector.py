"""The connector inside pyinfra, against SSH servers on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.tailnet.tailnet_stand_in import Tailnet

pytestmark = pytest.mark.patched


def test_hosts_are_known_by_their_plain_name(tailnet: Tailnet) -> None:
    tailnet.add("qfox")
    tailnet.add("architect")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/architect")
    assert deployment.connected == {"qfox", "architect"}
    assert deployment.run("qfox", "echo $((6 * 7)); echo careful >&2") == (True, "42", "careful")
