"""Growing a fleet node by node (section 10)."""

from __future__ import annotations

from dataclasses import dataclass

from tailtrain.spec.apportionment import q16_weights
from tailtrain.spec.fixed_point import ONE, Q16_16, ZERO
from tailtrain.spec.problems import raise_if_any
from tailtrain.spec.structures import NetworkNode, NetworkResources
from tailtrain.spec.validation import node_problems, repeated_hosts


@dataclass(frozen=True)
class SwarmColonizer:
    """The nodes registered so far, the last one first.

    The specification states its invariant as a proposition, which has no JSON; here it is computed.

    Attributes:
        registered_nodes: newest first.
        generation: how many registrations led here.
        total_resources: the sums over the registered nodes.
    """

    registered_nodes: tuple[NetworkNode, ...] = ()
    generation: int = 0
    total_resources: NetworkResources = NetworkResources.from_nodes(())  # noqa: RUF009 - an immutable value

    @property
    def weights(self) -> tuple[Q16_16, ...]:
        """Each node's exact part of all cores, in the order of the nodes; empty where there are none."""
        cores = [node.cores for node in self.registered_nodes]
        return q16_weights(cores) if any(cores) else ()

    @property
    def weight_balance(self) -> bool:
        """The specification's `weightBalanceInvariant`: the node weights sum to exactly 1.0.

        It fails for a swarm without cores, and for one whose resources are not those of its nodes.
        """
        total = sum(self.weights, start=ZERO)
        return total == ONE and self.total_resources == NetworkResources.from_nodes(self.registered_nodes)

    def register_node(self, node: NetworkNode) -> SwarmColonizer:
        """The swarm with one node more, put first: resources summed anew, one generation later.

        Raises:
            InvalidDeclarationError: the node's values cannot be, or its host is registered already.
        """
        nodes = (node, *self.registered_nodes)
        raise_if_any([*node_problems(node), *repeated_hosts(nodes)])
        return SwarmColonizer(
            registered_nodes=nodes,
            generation=self.generation + 1,
            total_resources=NetworkResources.from_nodes(nodes),
        )
