"""`validate`: judge the final model on records that nobody trained on, beside two baselines.

The baselines are the same model before training, and a unigram: each byte by its frequency in the training
text, with one added to each count. All losses are in nats per byte of the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tailtrain.errors import WorkerError
from tailtrain.worker.aggregate import MANIFEST_FILE, MODEL_FILE
from tailtrain.worker.files import canonical_json, write_atomically
from tailtrain.worker.model import SEPARATOR, build_model
from tailtrain.worker.reading.availability import try_to_fetch
from tailtrain.worker.reading.manifests import DataSet, load_data_set
from tailtrain.worker.reading.records import ChunkStore
from tailtrain.worker.trainer import choose_device
from tailtrain.worker.weights import FlatWeights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.data_config import DomainConfig

_MOST_CHUNKS = 64
_RECORD_SHARE = 16  # one record is judged by at most this part of the bytes
_BATCH = 32
_IGNORED = -100


def validate(config: WorkerConfig) -> None:
    """Write validation.json, and in it whether this node can get data of others.

    Raises:
        WorkerError: the final model or its manifest is missing, damaged or of another run, or a data set is.
    """
    began = time.perf_counter()
    torch.set_num_threads(config.threads)
    device = choose_device(config.device)
    content, sha256 = _final_model(config)
    trained = build_model(config.model, config.seed)
    untrained = build_model(config.model, config.seed).to(device).eval()
    layout = FlatWeights(trained, device)
    layout.values.copy_(layout.from_bytes(content))
    trained.to(device).eval()
    store = ChunkStore(config.chunk_dir)
    domains = {}
    data_sets = {domain.domain: load_data_set(config.state_dir, domain) for domain in config.data}
    for domain in config.data:
        data_set = data_sets[domain.domain]
        records = heldout_records(domain, data_set, store, config.validation_bytes_per_domain)
        domains[domain.domain] = {
            "loss": loss_per_byte(trained, records, config.model.context, device),
            "untrained_loss": loss_per_byte(untrained, records, config.model.context, device),
            "unigram_loss": unigram_loss(data_set.byte_counts, records),
            "records": len(records),
            "bytes": sum(len(record) for record in records),
        }
    result: dict[str, Any] = {
        "run_id": config.run_id,
        "node": config.node,
        "model_sha256": sha256,
        "domains": domains,
        "seconds": round(time.perf_counter() - began, 3),
        "device": device.type,
        "availability": try_to_fetch(config, data_sets),
    }
    write_atomically(config.run_dir / "validation.json", canonical_json(result), mode=0o644)


def _final_model(config: WorkerConfig) -> tuple[bytes, str]:
    """The final model's file and its hash, as its manifest names it."""
    directory = config.run_dir / "final"
    try:
        manifest = json.loads((directory / MANIFEST_FILE).read_bytes())
        content = (directory / MODEL_FILE).read_bytes()
    except (OSError, ValueError) as error:
        raise WorkerError(
            "the final model is not here", field=str(directory), found=str(error), fix="Aggregate first"
        ) from error
    if manifest.get("run_id") != config.run_id:
        raise WorkerError(
            "the final model is of another run",
            field=str(directory),
            found=manifest.get("run_id"),
            expected=config.run_id,
        )
    sha256 = hashlib.sha256(content).hexdigest()
    if manifest.get("sha256") != sha256:
        raise WorkerError(
            "the final model is not the one that its manifest names",
            field=str(directory / MODEL_FILE),
            found=sha256,
            expected=manifest.get("sha256"),
            fix="Copy it from the primary again",
        )
    return content, sha256


def heldout_records(
    domain: DomainConfig, data_set: DataSet, store: ChunkStore, most_bytes: int
) -> list[bytes]:
    """Held-out records up to `most_bytes`, the same on all nodes: one from each chunk in turn.

    Raises:
        WorkerError: there are none.
    """
    choose = random.Random(domain.manifest)  # noqa: S311 - a choice that all nodes make alike
    chunks = sorted(domain.heldout)
    trained_on = {chunk.sha256 for chunk in data_set.train}
    choose.shuffle(chunks)
    shelves = []
    for chunk in chunks[:_MOST_CHUNKS]:
        if chunk in trained_on:
            raise WorkerError("a held-out chunk was trained on", field=domain.domain, found=chunk)
        texts = [text for text in store.texts(chunk) if text]
        choose.shuffle(texts)
        shelves.append(texts)
    records: list[bytes] = []
    left = most_bytes
    depth = max((len(texts) for texts in shelves), default=0)
    for text in (texts[row] for row in range(depth) for texts in shelves if row < len(texts)):
        if left <= 0:
            break
        records.append(text[: min(left, max(1, most_bytes // _RECORD_SHARE))])
        left -= len(records[-1])
    if not records:
        raise WorkerError("there are no held-out records", field=domain.domain)
    return records


def loss_per_byte(model: nn.Module, records: Sequence[bytes], context: int, device: torch.device) -> float:
    """Mean cross-entropy in nats per byte, each record from its start, in windows of the context's length."""
    total, count = 0.0, 0
    for inputs, targets in _windows(records, context):
        with torch.inference_mode():
            logits = model(inputs.to(device)).flatten(0, 1)
            wanted = targets.to(device).flatten()
            loss = functional.cross_entropy(logits, wanted, ignore_index=_IGNORED, reduction="sum")
        total += float(loss)
        count += int((targets != _IGNORED).sum())
    return total / count


def _windows(records: Sequence[bytes], context: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of (input bytes, next bytes); what lies beyond a record's end is ignored.

    Sorted by length, so that a batch of short records is not padded to a long one's length.
    """
    windows = sorted(
        (
            (bytes([SEPARATOR]) + record)[first : first + context + 1]
            for record in records
            for first in range(0, len(record), context)
        ),
        key=len,
    )
    for start in range(0, len(windows), _BATCH):
        batch = windows[start : start + _BATCH]
        length = len(batch[-1]) - 1
        inputs = np.zeros((len(batch), length), np.int64)
        targets = np.full((len(batch), length), _IGNORED, np.int64)
        for row, window in enumerate(batch):
            values = np.frombuffer(window, np.uint8)
            inputs[row, : len(values) - 1] = values[:-1]
            targets[row, : len(values) - 1] = values[1:]
        yield torch.from_numpy(inputs), torch.from_numpy(targets)


def unigram_loss(byte_counts: Sequence[int], records: Sequence[bytes]) -> float:
    """Mean loss in nats per byte of a model that knows byte frequencies alone, one added to each count."""
    total = sum(byte_counts) + len(byte_counts)
    cost = np.array([-math.log((count + 1) / total) for count in byte_counts])
    seen = np.bincount(np.frombuffer(b"".join(records), np.uint8), minlength=len(byte_counts))
    return float(cost @ seen / seen.sum())
