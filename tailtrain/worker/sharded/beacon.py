"""Each node's supervisor says that it is alive, and where it thinks that the rendezvous is.

One JSON line for each connection, on the node's address. A connection that is refused is the quickest proof
that a node's supervisor is gone; one that times out says the same of the host.
"""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.worker.files import canonical_json
from tailtrain.worker.sharded.network import listen_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.worker.sharded.config import ShardedConfig

_TIMEOUT_SECONDS = 1.0
_MOST_BYTES = 1024


@dataclass(frozen=True)
class Word:
    """What a live node's supervisor said: its name, and the node that it takes the rendezvous to be on."""

    node: str
    host: str | None


class Beacon:
    """Answers whoever asks, until closed.

    Attributes:
        host: the node that holds the rendezvous as far as this node knows.
    """

    def __init__(self, config: ShardedConfig) -> None:
        self.host: str | None = None
        self._run_id, self._node = config.worker.run_id, config.worker.node
        self._socket = listen_on(config.address, config.beacon_port)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            word = {"run_id": self._run_id, "node": self._node, "host": self.host}
            with connection, suppress(OSError):
                connection.settimeout(_TIMEOUT_SECONDS)
                connection.sendall(canonical_json(word))

    def close(self) -> None:
        """Stop answering."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def hear(config: ShardedConfig) -> Mapping[str, Word]:
    """The other nodes that are alive, by name, and what they said; takes about a second at most."""
    others = [node for node in config.nodes if node.node != config.worker.node]
    if not others:
        return {}
    with ThreadPoolExecutor(len(others)) as pool:
        words = pool.map(lambda node: _ask(config, node.node, node.address), others)
    return {word.node: word for word in words if word is not None}


def _ask(config: ShardedConfig, node: str, address: str) -> Word | None:
    try:
        with socket.create_connection((address, config.beacon_port), timeout=_TIMEOUT_SECONDS) as asked:
            content = b""
            while not content.endswith(b"\n") and len(content) < _MOST_BYTES:
                part = asked.recv(_MOST_BYTES)
                if not part:
                    break
                content += part
        word: Any = json.loads(content)
    except (OSError, ValueError):
        return None
    known = {other.node for other in config.nodes}
    match word:
        case {"run_id": config.worker.run_id, "node": str(name), "host": host} if name == node:
            return Word(name, host if host in known else None)
    return None
