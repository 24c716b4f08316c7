"""The paths between hosts, asked of the hosts themselves, where a plan depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gevent.pool import Pool

from tailtrain.errors import FleetError
from tailtrain.fleet import remote
from tailtrain.planning.observed import Observation
from tailtrain.tailnet import ping_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyinfra.api.host import Host

    from tailtrain.planning.division.planned import RoundTrips
    from tailtrain.planning.observed import Observed
    from tailtrain.planning.sourcing import Paths

MOST_ASKED = 16
"""How many others each host looks for at most; to the rest the path counts as not known."""

_SECONDS = 6.0


def between(hosts: Iterable[Host], observed: Observed, asked: Mapping[str, Sequence[str]]) -> Paths:
    """How each host reaches those that it is asked about; a host that cannot say reaches none.

    Args:
        hosts: of the inventory.
        observed: with the address of each host that answered.
        asked: by host, the others that matter to it.
    """
    addresses = {name: answer.address for name, answer in observed.items() if isinstance(answer, Observation)}

    def ask(host: Host) -> tuple[str, dict[str, str]]:
        others = {name: addresses[name] for name in asked[host.name] if name in addresses}
        request = {"addresses": others, "seconds": _SECONDS}
        try:
            return host.name, dict(remote.ask(host, [ping_program], request, timeout=30)["paths"])
        except FleetError:
            return host.name, {}

    return dict(Pool(64).imap_unordered(ask, [host for host in hosts if host.name in asked]))


def round_trips(hosts: Iterable[Host], observed: Observed) -> RoundTrips:
    """The shortest round trip between every two nodes that answered, and whether the path is direct.

    A pair of which the first, in the inventory's order, cannot say is left out.
    """
    addresses = {name: answer.address for name, answer in observed.items() if isinstance(answer, Observation)}
    names = list(addresses)

    def ask(host: Host) -> dict[str, tuple[float, bool]]:
        others = {name: addresses[name] for name in names[names.index(host.name) + 1 :]}
        request = {"what": "round_trips", "addresses": others, "seconds": _SECONDS}
        try:
            said = remote.ask(host, [ping_program], request, timeout=30)["round_trips"]
        except FleetError:
            return {}
        return {name: (float(seconds), bool(direct)) for name, (seconds, direct) in said.items()}

    asked = [host for host in hosts if host.name in names[:-1]]
    answers = zip(asked, Pool(64).map(ask, asked), strict=True)
    return {(host.name, other): trip for host, trips in answers for other, trip in trips.items()}
