"""What a fleet needs of the tailnet's policy, as text to merge into it. The policy itself is never written.

The rules are those of https://tailscale.com/kb/1337/policy-syntax: Tailscale SSH goes to a tagged machine, or
from a user's machine to another of the same user, and needs port 22 besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.planning.templates import Templates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailtrain.tailnet.owners import Identity

TEMPLATE = "tailnet-policy.hujson.j2"
SSH_PORT = 22


@dataclass(frozen=True)
class PolicyNode:
    """A node as the policy sees it.

    Attributes:
        name: in the inventory.
        address: in the tailnet.
        identity: how rules name it.
        user: who is logged in as there; None on the machine that deploys, which does not log in to itself.
    """

    name: str
    address: str
    identity: Identity
    user: str | None


@dataclass(frozen=True)
class PolicyNeeds:
    """Everything that the rules are made from.

    Attributes:
        control: the name of the machine that deploys.
        source: how rules name that machine.
        nodes: in the inventory's order.
        worker_port: where workers reach each other.
        chunk_port: where they fetch each other's chunks.
        gossip_port: where Serf's agents reach each other, with TCP and UDP; None without Serf.
        beacon_port: where nodes that divide a model say that they are alive; None where each has all of it.
    """

    control: str
    source: Identity
    nodes: Sequence[PolicyNode]
    worker_port: int
    chunk_port: int
    gossip_port: int | None = None
    beacon_port: int | None = None

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that nodes open to each other; one that divides a model opens others besides."""
        more = (self.gossip_port, self.beacon_port)
        return (self.worker_port, self.chunk_port, *(port for port in more if port is not None))

    @property
    def targets(self) -> tuple[str, ...]:
        """Addresses with ports that must be reachable, as the API previews them."""
        return tuple(
            f"{node.address}:{port}"
            for node in self.nodes
            for port in ((SSH_PORT,) if node.user is not None else ()) + self.ports
        )

    @property
    def out_of_reach(self) -> tuple[PolicyNode, ...]:
        """Nodes that no rule can let this machine log in to: untagged ones of another user."""
        return tuple(
            node
            for node in self.nodes
            if node.user is not None and not node.identity.is_tag and node.identity != self.source
        )


def policy_text(needs: PolicyNeeds, template: str) -> str:
    """The rules that a fleet needs, as HuJSON.

    Args:
        needs: what they are made from.
        template: the text of the Jinja template.

    Raises:
        DeclarationError: the template cannot be rendered.
    """
    identities = sorted({node.identity for node in needs.nodes})
    logged_in = [node for node in needs.nodes if node.user is not None and node not in needs.out_of_reach]
    rules = [
        {
            "sources": [needs.source.name],
            "targets": [target.name if target.is_tag else "autogroup:self"],
            "users": _unique(str(node.user) for node in logged_in if node.identity == target),
        }
        for target in sorted({node.identity for node in logged_in})
    ]
    tests = [
        {"source": needs.source.name, "accept": _destinations(logged_in, SSH_PORT)},
        *(
            {"source": identity.name, "accept": _destinations(needs.nodes, *needs.ports)}
            for identity in identities
        ),
        *(
            {"source": each.name, "protocol": "udp", "accept": _destinations(needs.nodes, needs.gossip_port)}
            for each in identities
            if needs.gossip_port is not None
        ),
    ]
    values = {
        "control": needs.control,
        "sources": [needs.source.name],
        "nodes": [identity.name for identity in identities],
        "tags": sorted({each.name for each in (needs.source, *identities) if each.is_tag}),
        "worker_port": needs.worker_port,
        "chunk_port": needs.chunk_port,
        "gossip_port": needs.gossip_port,
        "beacon_port": needs.beacon_port,
        "ssh": rules,
        "tests": [test for test in tests if test["accept"]],
        "ssh_tests": [
            {"source": needs.source.name, "targets": rule["targets"], "users": rule["users"]}
            for rule in rules
            if rule["targets"] != ["autogroup:self"]
        ],
    }
    return Templates({TEMPLATE: template}).render(TEMPLATE, needs.control, values)


def _destinations(nodes: Iterable[PolicyNode], *ports: int) -> list[str]:
    """What a test of the policy must reach: a tag for all that bear it, else each machine by its address."""
    return _unique(
        f"{node.identity.name if node.identity.is_tag else node.address}:{port}"
        for node in nodes
        for port in ports
    )


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
