"""The declaration tried for every node, before any host is asked: templates rendered, memory compared.

The values are those that the declaration gives; what only hosts and data sets can say is stood in for. So a
template that fails, for whichever node, is found although no host answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.choices import declared_choices
from tailtrain.planning.datasets import PlannedChunk, PlannedDataset
from tailtrain.planning.division.node_config import sharded_rehearsal
from tailtrain.planning.hardware import declared_limits
from tailtrain.planning.memory import require_memory
from tailtrain.planning.node_config import FleetSpans, Peer, Spans, unit_values, worker_document
from tailtrain.planning.placement import Placement, Range
from tailtrain.planning.plan import CPU_LOCK, CUDA_LOCK, Material, quorum_of
from tailtrain.planning.storage_plan import PlannedStorage
from tailtrain.spec import StorageBackend
from tailtrain.spec.problems import Problems

if TYPE_CHECKING:
    from tailtrain.planning.actions import Declared
    from tailtrain.planning.templates import Templates

_HASH = "0" * 64
_OTHERS = (
    2  # peers that each node is told of here: a template makes no difference between three and a thousand
)


def check_templates(templates: Templates, declared: Declared, material: Material) -> None:
    """Render everything for every node.

    Raises:
        DeclarationError: all templates that fail, each with its line and the hosts that it fails for.
    """
    problems = Problems()
    settings = declared.settings
    datasets = [
        PlannedDataset(domain, file, 1, _HASH, 2, (PlannedChunk(_HASH, 1, 1),), (PlannedChunk(_HASH, 1, 1),))
        for domain, file in settings.datasets
    ]
    storage = None
    if settings.training.storage_backend is not StorageBackend.LOCAL:
        storage = PlannedStorage(settings.storage.remote or "", _HASH)
    peers = [
        Peer(node.hostname, node.role.value, "100.64.0.1", settings.worker_port, "Qm")
        for node in declared.nodes[: _OTHERS + 1]
    ]
    for node in declared.nodes:
        name = node.hostname
        limits = declared_limits(node, declared.reserves[name])
        me = Peer(name, node.role.value, "100.64.0.1", settings.worker_port, "Qm")
        lock = CUDA_LOCK if limits.device == "cuda" else CPU_LOCK
        placements: dict[str, Placement] = {
            dataset.domain: {name: (Range(_HASH, 0, 1),)} for dataset in datasets
        }
        document = worker_document(
            run_id="0" * 16,
            me=me,
            peers=peers,
            quorum=quorum_of(len(declared.nodes)),
            limits=limits,
            settings=settings,
            datasets=datasets,
            placements=placements,
            spans={
                dataset.domain: FleetSpans({peer.node: Spans([[0, 0, 0, 1]]) for peer in peers})
                for dataset in datasets
            },
            rclone=layout.rclone(material.locks[lock]),
            storage=storage,
            choices=declared_choices(settings),
            code=material.code_id,
        )
        with problems.gathered():
            templates.render_worker(name, document)
        if not settings.data_parallel:
            with problems.gathered():
                templates.render_document("sharded.json", name, sharded_rehearsal(settings, peers))
        for unit in layout.units(gossips=settings.gossips):
            with problems.gathered():
                templates.render_unit(unit, name, unit_values(material, lock, limits, settings, me, peers))
    problems.raise_if_any()


def check_memory(declared: Declared) -> None:
    """Compare what training needs with the memory that each node is declared to have.

    Where the model is divided, the plan compares: who holds what depends on who is there.

    Raises:
        DeclarationError: every node that cannot hold it.
    """
    problems, settings = Problems(), declared.settings
    if not settings.data_parallel:
        return
    for node in declared.nodes:
        limits = declared_limits(node, declared.reserves[node.hostname])
        with problems.gathered():
            require_memory(
                node.hostname, limits.memory_bytes, settings.model, settings.loop, device=limits.device
            )
    problems.raise_if_any()
