"""What a plan carries over from what the hosts have now: the run under way, owned ranges, known peers.

A host's configuration may have been edited by hand: it is not trusted further than its shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailtrain.planning import layout
from tailtrain.planning.moves import moves
from tailtrain.planning.node_config import Peer
from tailtrain.planning.parts import ChunkMove, counted
from tailtrain.planning.placement import Chunk, Placement, Range, disjoint, place
from tailtrain.planning.plan import run_ids

if TYPE_CHECKING:
    from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
    from tailtrain.planning.observed import Observation
    from tailtrain.planning.plan import Material
    from tailtrain.planning.settings import Settings
    from tailtrain.spec import NetworkNode

Owned = Mapping[str, Sequence[tuple[str, int, int]]]
"""Node to the row ranges that it owns."""


def run_id_of(
    settings: Settings,
    datasets: Sequence[PlannedDataset],
    material: Material,
    nodes: Sequence[NetworkNode],
    answers: Mapping[str, Observation],
) -> str:
    """The id of the run at hand, or of the new one that this declaration is."""
    what, who = run_ids(settings, datasets, material, nodes)
    return run_at_hand(what, nodes, answers) or what + who


def run_at_hand(what: str, nodes: Sequence[NetworkNode], answers: Mapping[str, Observation]) -> str | None:
    """The id of a run of the same declaration that hosts have, and that this fleet is to go on with.

    That is one under way, by whatever nodes it was begun: a changed fleet goes on with it. A finished one is
    this fleet's if all its nodes were there when it finished: a new machine is to train, one that left takes
    nothing away.
    """
    found = [answer for answer in answers.values() if answer.run.run_id.startswith(what)]
    finished = [answer for answer in found if answer.run.state == "finished"]
    under_way = {answer.run.run_id for answer in found} - {answer.run.run_id for answer in finished}
    fleet = {node.hostname for node in nodes}
    ours = {answer.run.run_id for answer in finished if fleet <= {answer.node, *_remembered([answer])}}
    return min(under_way or ours, default=None)


def chunks_to_share(dataset: PlannedDataset) -> list[Chunk]:
    """The training chunks as a placement takes them, in the order in which they are shared out."""
    return [Chunk(chunk.sha256, chunk.rows) for chunk in dataset.shared]


def owned_now(
    settings: Settings,
    nodes: Sequence[NetworkNode],
    datasets: Sequence[PlannedDataset],
    answers: Mapping[str, Observation],
) -> dict[str, Owned]:
    """By domain: the rows that each host owns now, where anybody owns any.

    Where data are shared out, two hosts may claim the same rows: one that was away while the fleet changed
    still has its old configuration. The first in the inventory has them then.
    """
    found: dict[str, Owned] = {}
    for dataset in datasets:
        ranges = {
            node.hostname: _ranges_on(answers[node.hostname], dataset)
            for node in nodes
            if node.hostname in answers
        }
        if settings.shares_data:
            chunks = chunks_to_share(dataset)
            ranges = {name: tuple(own) for name, own in disjoint(chunks, list(ranges), ranges).items()}
        found[dataset.domain] = {name: own for name, own in ranges.items() if own}
    return found


def placements_of(
    settings: Settings,
    nodes: Sequence[NetworkNode],
    datasets: Sequence[PlannedDataset],
    quotas: Mapping[str, Mapping[str, int]],
    owned: Mapping[str, Owned],
) -> dict[str, Placement]:
    """Who owns which rows of each data set: what is in place stays, as far as the quotas allow."""
    placements: dict[str, Placement] = {}
    for dataset in datasets:
        chunks = chunks_to_share(dataset)
        if settings.shares_data:
            placements[dataset.domain] = place(chunks, quotas[dataset.domain], owned[dataset.domain])
        else:
            everything = tuple(Range(chunk.sha256, 0, chunk.rows) for chunk in chunks)
            placements[dataset.domain] = {node.hostname: everything for node in nodes}
    return placements


def records_moved(
    placements: Mapping[str, Placement], owned: Mapping[str, Owned], answers: Mapping[str, Observation]
) -> dict[str, int]:
    """How many records of each data set come to another node than before, where somebody had any before."""
    moved = {}
    for domain, before in owned.items():
        if before:
            gained = moves(before, placements[domain]).gained
            # What a host has that did not answer is not known.
            moved[domain] = sum(records for name, records in gained.items() if name in answers)
    return moved


def least_moved(
    quotas: Mapping[str, Mapping[str, int]],
    owned: Mapping[str, Owned],
    answers: Mapping[str, Observation],
) -> dict[str, int]:
    """The least that any placement with these quotas moves: what the growing nodes lack, added up."""
    least = {}
    for domain, before in owned.items():
        if before:
            had = {name: sum(stop - start for _, start, stop in ranges) for name, ranges in before.items()}
            wanted = quotas[domain]
            least[domain] = sum(max(0, wanted[name] - had.get(name, 0)) for name in wanted if name in answers)
    return least


def peers_of(
    settings: Settings,
    nodes: Sequence[NetworkNode],
    answers: Mapping[str, Observation],
    new_peer_ids: Mapping[str, str],
) -> list[Peer]:
    """All nodes that can be named as peers: those that answered, and absent ones that others remember."""
    remembered = _remembered([answers[node.hostname] for node in nodes if node.hostname in answers])
    peers = []
    for node in nodes:
        name = node.hostname
        if name in answers:
            address, peer_id = answers[name].address, answers[name].peer_id or new_peer_ids[name]
        elif name in remembered:
            address, peer_id = remembered[name]
        else:
            continue
        peers.append(Peer(name, node.role.value, address, settings.worker_port, peer_id))
    return peers


def chunks_on(answer: Observation) -> frozenset[str]:
    """The chunks that a host's configuration names, to train on or to judge by."""
    named: set[str] = set()
    try:
        for entry in _config_on(answer)["data"]:
            named.update(str(sha256) for sha256, _, _ in entry["ranges"])
            named.update(map(str, entry["heldout"]))
    except (KeyError, TypeError, ValueError):
        return frozenset()
    return frozenset(named)


def moves_of(
    datasets: Sequence[PlannedDataset],
    quotas: Mapping[str, Mapping[str, int]],
    name: str,
    answer: Observation,
    chunks: Sequence[PlannedChunk],
    copies: frozenset[str],
) -> list[ChunkMove]:
    """The chunks that a host lacks, by the reason for which they go there."""
    lacking = {chunk.sha256 for chunk in chunks}
    had = chunks_on(answer)
    found = []
    for dataset in datasets:
        domain = dataset.domain
        before = sum(stop - start for _, start, stop in _ranges_on(answer, dataset))
        grown = quotas[domain][name] - before
        detail = ""
        if not before:
            new = f"no {domain} data there yet"
        elif grown > 0:
            new, detail = f"{domain} grows", f"by {counted(grown, 'record')}"
        else:
            new = f"other records of {domain} than before"
        groups: dict[str, list[int]] = {f"damaged, of {domain}": [], f"missing, of {domain}": [], new: []}
        copied = f"copies of {domain} for the other nodes"
        groups[copied] = []
        for chunk in (*dataset.train, *dataset.heldout):
            if chunk.sha256 in lacking:
                if chunk.sha256 in answer.damaged:
                    why = f"damaged, of {domain}"
                elif chunk.sha256 in had:
                    why = f"missing, of {domain}"
                else:
                    why = copied if chunk.sha256 in copies else new
                groups[why].append(chunk.bytes)
        for why, sizes in groups.items():
            if sizes:
                found.append(ChunkMove(why, len(sizes), sum(sizes), detail if why == new else ""))
    return found


def _remembered(answers: Sequence[Observation]) -> dict[str, tuple[str, str]]:
    """Address and peer id of each node that a configuration names; the first to name it decides."""
    remembered: dict[str, tuple[str, str]] = {}
    for answer in answers:
        try:
            entries = [
                (entry["node"], (entry["address"], entry["peer_id"]))
                for entry in _config_on(answer)["coordination"]["peers"]
            ]
        except (KeyError, TypeError):
            continue
        for name, known in entries:
            if isinstance(name, str) and all(isinstance(value, str) for value in known):
                remembered.setdefault(name, known)
    return remembered


def _config_on(answer: Observation) -> Mapping[str, Any]:
    try:
        document = json.loads(answer.files.get(layout.CONFIG) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _ranges_on(answer: Observation, dataset: PlannedDataset) -> tuple[tuple[str, int, int], ...]:
    """What a host owns now of a data set."""
    try:
        return next(
            tuple((str(sha256), int(start), int(stop)) for sha256, start, stop in entry["ranges"])
            for entry in _config_on(answer)["data"]
            if entry["manifest"] == dataset.manifest_id
        )
    except (StopIteration, KeyError, TypeError, ValueError):
        return ()
