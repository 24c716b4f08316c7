"""The configuration of each node's worker: a document, and the text that its template makes of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import jinja2

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.placement import Placement
    from tailtrain.planning.settings import Settings


@dataclass(frozen=True)
class Peer:
    """A node as the others reach it."""

    node: str
    role: str
    address: str
    port: int
    peer_id: str


@dataclass(frozen=True)
class NodeLimits:
    """What a worker may use: threads, the cores behind them, memory in bytes, and the device."""

    threads: int
    usable_cores: float
    cpu_quota_percent: int
    memory_bytes: int
    device: str


def worker_document(
    *,
    run_id: str,
    me: Peer,
    peers: Sequence[Peer],
    quorum: int,
    limits: NodeLimits,
    settings: Settings,
    datasets: Sequence[PlannedDataset],
    placements: Mapping[str, Placement],
) -> dict[str, object]:
    """The document that `worker.json` holds for one node."""
    loop = asdict(settings.loop)
    seed = loop.pop("seed")
    return {
        "run_id": run_id,
        "node": me.node,
        "role": me.role,
        "seed": seed,
        "device": limits.device,
        "threads": limits.threads,
        "usable_cores": limits.usable_cores,
        "state_dir": layout.STATE_DIR,
        "model": asdict(settings.model),
        "training": loop | {"fault_tolerance": settings.training.fault_tolerance},
        "coordination": {
            "protocol": settings.training.coordination_protocol.value,
            "address": me.address,
            "port": me.port,
            "quorum": quorum,
            "peers": [asdict(peer) for peer in peers if peer.node != me.node],
        },
        "data": [
            {
                "domain": dataset.domain,
                "manifest": dataset.manifest_id,
                "ranges": [list(piece) for piece in placements[dataset.domain].get(me.node, ())],
                "heldout": [chunk.sha256 for chunk in dataset.heldout],
            }
            for dataset in datasets
        ],
        "validation": {"bytes_per_domain": settings.validation_bytes_per_domain},
    }


class Templates:
    """The Jinja templates of a project, strict about undefined names.

    Args:
        sources: template name to its text.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        # The results are JSON and unit files, not HTML; values are quoted by `tojson` and by the
        # `word` filter below.
        self._environment = jinja2.Environment(
            loader=jinja2.DictLoader(dict(sources)),
            undefined=jinja2.StrictUndefined,
            autoescape=False,  # noqa: S701 - see above
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)

    def render(self, name: str, host: str, values: Mapping[str, object]) -> str:
        """The text of a template for one host.

        Raises:
            DeclarationError: naming the host, the template and its line.
        """
        try:
            return self._environment.get_template(name).render(values)
        except jinja2.TemplateNotFound as error:
            raise DeclarationError("no such template", host=host, field=f"templates/{error.name}") from None
        except jinja2.TemplateSyntaxError as error:
            raise DeclarationError(
                f"cannot be read: {error.message}", host=host, field=f"templates/{name}, line {error.lineno}"
            ) from None
        except (jinja2.UndefinedError, TypeError, ValueError) as error:
            raise DeclarationError(
                f"cannot be rendered: {error}", host=host, field=f"templates/{name}"
            ) from None

    def render_worker(self, host: str, document: Mapping[str, object]) -> str:
        """`worker.json` for one host, checked to say what the document says.

        Raises:
            DeclarationError: where the template makes something else of it.
        """
        text = self.render("worker.json.j2", host, document)
        try:
            rendered = json.loads(text)
        except ValueError as error:
            raise DeclarationError(
                f"does not make JSON: {error}", host=host, field="templates/worker.json.j2"
            ) from None
        if rendered != document:
            wrong = sorted(key for key in {*rendered, *document} if rendered.get(key) != document.get(key))
            raise DeclarationError(
                "leaves out or changes values that the plan decides",
                host=host,
                field="templates/worker.json.j2",
                found=", ".join(wrong),
            )
        return text
