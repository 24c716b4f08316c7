"""status.json and progress.jsonl of this engine, in the form of worker.status.

On a node the supervisor writes while nobody trains, and the rank while it does; each keeps what the other
said. `pid` is the supervisor's, `rank_pid` the rank's.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from tailtrain.worker.files import append_line, canonical_json, write_atomically
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from tailtrain.worker.sharded.config import ShardedConfig
    from tailtrain.worker.status import State

_REFRESH_SECONDS = 10.0
_DETAIL_SECONDS = 1.0


class ShardedStatus:
    """The status of this run on this node.

    Args:
        config: this node's configuration.
        start: whether this begins a start of the unit, which the status counts.
    """

    def __init__(self, config: ShardedConfig, *, start: bool = False) -> None:
        worker = config.worker
        self._path = worker.run_dir / "status.json"
        self._progress = worker.run_dir / "progress.jsonl"
        before = self.read()
        self._own: dict[str, Any] = {
            "run_id": worker.run_id,
            "node": worker.node,
            "target_tokens": worker.training.target_tokens,
            "config_sha256": config.sha256,
            "strategy": config.strategy,
            "device": "cpu",
            "threads": worker.threads,
            "starts": int(before.get("starts", 0)) + start,
            ("pid" if start else "rank_pid"): os.getpid(),
        }
        self._written = 0.0
        self._last: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """What the file says now; empty where there is none."""
        try:
            value = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def set(self, state: State, message: str = "", *, at_once: bool = False, **fields: Any) -> None:
        """Write the state, a message and other fields; details alone once a second at most, or `at_once`."""
        changed = {"state": state, "message": message, **fields}
        since, last = time.monotonic() - self._written, self._last
        detail = (state, message) == (last.get("state"), last.get("message"))
        often = (detail and since < _DETAIL_SECONDS) or (changed == last and since < _REFRESH_SECONDS)
        if often and not at_once:
            return
        if message and message != self._last.get("message"):
            log(message)
        defaults: dict[str, Any] = {
            "round": -1,
            "step": 0,
            "tokens": 0,
            "records": 0,
            "total_tokens": 0,
            "weights_sha256": None,
            "loss": None,
            "tokens_per_second": None,
            "fetching": "",
            "layers": None,
            "parameter_bytes": 0,
            "members": [],
        }
        content = {
            **defaults,
            **self.read(),
            **self._own,
            **changed,
            "updated_unix": round(time.time(), 3),
        }
        write_atomically(self._path, canonical_json(content), mode=0o644)
        self._last, self._written = changed, time.monotonic()

    def add_progress(self, line: dict[str, Any]) -> None:
        """Add a round to progress.jsonl."""
        append_line(self._progress, canonical_json(line))
