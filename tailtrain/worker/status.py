"""What a node says about a run to whoever reads its files: status.json and progress.jsonl."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from tailtrain.worker.files import append_line, canonical_json, write_atomically

if TYPE_CHECKING:
    from tailtrain.worker.config import WorkerConfig

State = Literal["starting", "waiting", "training", "averaging", "paused", "finished", "failed", "stopped"]

_ENDS: tuple[State, ...] = ("finished", "failed", "stopped")
_REFRESH_SECONDS = 10.0


class StatusFile:
    """status.json of this run on this node; each change replaces the file as one step."""

    def __init__(self, config: WorkerConfig) -> None:
        self._path = config.run_dir / "status.json"
        self._progress = config.run_dir / "progress.jsonl"
        before = _read(self._path)
        self._fields: dict[str, Any] = {
            "run_id": config.run_id,
            "node": config.node,
            "state": "starting",
            "round": before.get("round", -1),
            "tokens": before.get("tokens", 0),
            "records": before.get("records", 0),
            "total_tokens": before.get("total_tokens", 0),
            "target_tokens": config.training.target_tokens,
            "config_sha256": config.sha256,
            "pid": os.getpid(),
            "weights_sha256": before.get("weights_sha256"),
            "loss": before.get("loss"),
            "tokens_per_second": before.get("tokens_per_second"),
            "device": config.device,
            "threads": config.threads,
            "message": "",
            "fetching": "",
            "starts": int(before.get("starts", 0)) + 1,
        }
        self._written = 0.0
        self._lock = threading.Lock()

    def set(self, state: State, message: str = "", **fields: Any) -> None:
        """Write the state and other fields; the same as before is written again only now and then."""
        with self._lock:
            changed = {**self._fields, "state": state, "message": message, **fields}
            if state in _ENDS:
                changed["fetching"] = ""
            self._set(changed)

    def fetching(self, what: str) -> None:
        """Say which chunks are being fetched, nothing if none are; may be called from any thread."""
        with self._lock:
            if self._fields["state"] not in _ENDS:
                self._set({**self._fields, "fetching": what})

    def _set(self, changed: dict[str, Any]) -> None:
        if changed == self._fields and time.monotonic() - self._written < _REFRESH_SECONDS:
            return
        if changed["message"] and changed["message"] != self._fields["message"]:
            log(changed["message"])
        if changed["fetching"] and not self._fields["fetching"]:
            log(changed["fetching"])
        self._fields = changed
        content = canonical_json({**changed, "updated_unix": round(time.time(), 3)})
        write_atomically(self._path, content, mode=0o644)
        self._written = time.monotonic()

    def add_progress(self, line: dict[str, Any]) -> None:
        """Add a round to progress.jsonl."""
        append_line(self._progress, canonical_json(line))


def log(message: str) -> None:
    """One line for the journal, which adds the time."""
    print(message, file=sys.stderr, flush=True)


def _read(path: Any) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
