"""`aggregate`: on the primary, the newest finished checkpoint becomes the final model, with who did what."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from tailtrain.errors import WorkerError
from tailtrain.worker.aggregate import MANIFEST_FILE, MODEL_FILE
from tailtrain.worker.files import canonical_json, sync_directory, write_atomically
from tailtrain.worker.ledger import Entry, total_tokens
from tailtrain.worker.sharded.checkpoints import Checkpoints
from tailtrain.worker.sharded.files import sha256_of
from tailtrain.worker.sharded.layout import whole_model
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from tailtrain.worker.sharded.config import ShardedConfig


def aggregate(config: ShardedConfig, reports: bytes) -> None:
    """Write final/model.safetensors and final/manifest.json, as the data-parallel engine's `aggregate` does.

    Args:
        config: the primary's configuration.
        reports: JSON `{"nodes": {name: that node's status.json, or null}}`.

    Raises:
        WorkerError: this is not the primary, the run has not finished here, a report cannot be read, or the
            weights are damaged.
    """
    worker = config.worker
    if not worker.is_primary:
        raise WorkerError("the final model is made on the primary", host=worker.node)
    statuses = _read_reports(reports)
    whole = whole_model(worker.model)
    store = Checkpoints(
        worker.run_dir / "checkpoints",
        run_id=worker.run_id,
        whole=whole,
        keep=worker.training.keep_checkpoints,
    )
    final = store.newest(log)
    if final is None or not final.finished:
        raise WorkerError(
            "the run has not finished on this node",
            host=worker.node,
            found="no checkpoint" if final is None else f"round {final.round}",
            fix="Train first",
        )
    total = total_tokens(final.ledger)
    contributions = []
    for node in sorted({*worker.nodes, *final.ledger}):
        entry, status = final.ledger.get(node, Entry()), statuses.get(node) or {}
        contributions.append(
            {
                "node": node,
                "tokens": entry.tokens,
                "share": entry.tokens / total,
                "records": entry.records,
                "rounds": entry.rounds,
                "layers": status.get("layers"),
                "parameter_bytes": status.get("parameter_bytes", 0),
                "in_final_average": status.get("state") == "finished"
                and status.get("run_id") == worker.run_id
                and status.get("weights_sha256") == final.weights_sha256,
            }
        )
    directory = worker.run_dir / "final"
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{MODEL_FILE}"
    shutil.copyfile(store.weights_file(final), temporary)
    manifest = {
        "run_id": worker.run_id,
        "round": final.round,
        "sha256": sha256_of(temporary),
        "weights_sha256": final.weights_sha256,
        "parameters": whole.parameters,
        "model": {
            "layers": worker.model.layers,
            "width": worker.model.width,
            "heads": worker.model.heads,
            "context": worker.model.context,
        },
        "contributions": contributions,
        "data": {domain.domain: domain.manifest for domain in worker.data},
        "created_unix": final.committed_unix,
    }
    temporary.replace(directory / MODEL_FILE)
    sync_directory(directory)
    write_atomically(directory / MANIFEST_FILE, canonical_json(manifest))


def _read_reports(reports: bytes) -> dict[str, dict[str, Any] | None]:
    """The nodes' status documents by name."""
    try:
        nodes = json.loads(reports)["nodes"]
        return {str(node): None if status is None else dict(status) for node, status in nodes.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkerError(
            "the nodes' reports cannot be read",
            field="standard input",
            found=repr(error),
            expected='{"nodes": {name: status or null}}',
        ) from error
