"""`aggregate`: on the primary, turn the finished state into the final model, and say who contributed what."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from tailtrain.errors import WorkerError
from tailtrain.worker.checkpoints import CheckpointStore
from tailtrain.worker.files import canonical_json, write_atomically
from tailtrain.worker.ledger import Entry, total_tokens
from tailtrain.worker.model import build_model
from tailtrain.worker.reading.supply import load_shards
from tailtrain.worker.status import log
from tailtrain.worker.trainer import choose_device
from tailtrain.worker.weights import FlatWeights, weights_sha256

if TYPE_CHECKING:
    from tailtrain.worker.config import WorkerConfig

MODEL_FILE = "model.safetensors"
MANIFEST_FILE = "manifest.json"


def aggregate(config: WorkerConfig, reports: bytes) -> None:
    """Write final/model.safetensors and final/manifest.json; the same input gives the same bytes again.

    Args:
        config: the primary's configuration.
        reports: JSON `{"nodes": {name: that node's status.json, or null}}`.

    Raises:
        WorkerError: this is not the primary, the run has not finished here, a report is of another run or
            node, or the weights are damaged or not finite.
    """
    if not config.is_primary:
        raise WorkerError("the final model is made on the primary", host=config.node)
    statuses = _read_reports(config, reports)
    layout = FlatWeights(build_model(config.model, config.seed), choose_device("cpu"))
    store = CheckpointStore(
        config.run_dir / "checkpoints",
        run_id=config.run_id,
        shards=load_shards(config),
        keep=config.training.keep_checkpoints,
    )
    final = store.load_newest(layout, report=log)
    if final is None or not final.finished:
        raise WorkerError(
            "the run has not finished on this node",
            host=config.node,
            found="no checkpoint" if final is None else f"round {final.round}",
            fix="Train first",
        )
    digest = weights_sha256(final.weights)
    model = layout.to_bytes(final.weights)
    total = total_tokens(final.ledger)
    contributions = []
    for node in sorted({*config.nodes, *final.ledger}):
        entry = final.ledger.get(node, Entry())
        status = statuses.get(node)
        contributions.append(
            {
                "node": node,
                "tokens": entry.tokens,
                "share": entry.tokens / total,
                "records": entry.records,
                "rounds": entry.rounds,
                "in_final_average": status is not None
                and status.get("state") == "finished"
                and status.get("weights_sha256") == digest,
            }
        )
    manifest = {
        "run_id": config.run_id,
        "round": final.round,
        "sha256": hashlib.sha256(model).hexdigest(),
        "weights_sha256": digest,
        "parameters": final.weights.numel(),
        "model": {
            "layers": config.model.layers,
            "width": config.model.width,
            "heads": config.model.heads,
            "context": config.model.context,
        },
        "contributions": contributions,
        "data": {domain.domain: domain.manifest for domain in config.data},
        "created_unix": final.committed_unix,
    }
    directory = config.run_dir / "final"
    write_atomically(directory / MODEL_FILE, model)
    write_atomically(directory / MANIFEST_FILE, canonical_json(manifest))


def _read_reports(config: WorkerConfig, reports: bytes) -> dict[str, dict[str, Any] | None]:
    """The nodes' status documents by name, checked to be of this run's nodes."""
    try:
        nodes = json.loads(reports)["nodes"]
        statuses = dict(nodes.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkerError(
            "the nodes' reports cannot be read",
            field="standard input",
            found=repr(error),
            expected='{"nodes": {name: status or null}}',
        ) from error
    for node, status in statuses.items():
        if node not in config.nodes:
            raise WorkerError("a report is of a node that is not of this run", host=node)
        if status is None:
            continue
        if not isinstance(status, dict) or status.get("node") != node:
            raise WorkerError("a report is not of the node that it stands for", host=node)
        if status.get("run_id") != config.run_id:
            raise WorkerError(
                "a report is of another run", host=node, found=status.get("run_id"), expected=config.run_id
            )
    return statuses
