"""Each node's supervisor says that it is alive, over a port of its own: the hearing of centralized runs.

One JSON line for each connection, on the node's address. A connection that is refused is the quickest proof
that a node's supervisor is gone; one that times out says the same of the host.
"""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tailtrain.worker.sharded.hearing import Word, choose_host, read_word
from tailtrain.worker.sharded.network import listen_on
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.worker.sharded.config import ShardedConfig

_TIMEOUT_SECONDS = 1.0
_MOST_BYTES = 1024
_AGAIN_SECONDS = 0.2


class Beacon:
    """Answers whoever asks, until closed, and asks the others.

    Args:
        config: this node's configuration.

    Raises:
        WorkerError: this node cannot listen there.
    """

    def __init__(self, config: ShardedConfig) -> None:
        self._config = config
        self._word = Word(config.worker.run_id, config.worker.node)
        self._socket = listen_on(config.address, config.beacon_port)
        self._closed = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def tell(self, host: str | None, *, finished: bool = False) -> None:
        """See Hearing."""
        self._word = replace(self._word, host=host, finished=finished)

    def hear(self) -> Mapping[str, Word]:
        """See Hearing; takes about a second at most."""
        others = [node for node in self._config.nodes if node.node != self._config.worker.node]
        if not others:
            return {}
        with ThreadPoolExecutor(len(others)) as pool:
            words = pool.map(lambda node: self._ask(node.node, node.address), others)
        return {word.node: word for word in words if word is not None}

    def choose(self, words: Mapping[str, Word]) -> str | None:
        """See Hearing: the first of the order that the configuration has."""
        return choose_host(self._config.rendezvous_order, self._config.worker.node, words)

    def why(self) -> str:
        """See Hearing."""
        return f"waits for a node that may hold the rendezvous: {', '.join(self._config.rendezvous_order)}"

    @property
    def dead(self) -> frozenset[str]:
        """Nobody: whether a node that is silent is dead cannot be told by one that asks it."""
        return frozenset()

    def show(self, round_number: int, tokens_per_second: float) -> None:
        """Nothing: a beacon is asked, it does not spread news."""

    def close(self) -> None:
        """See Hearing."""
        self._closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                # Whoever asked is gone again, or too many files are open here: neither may silence this node.
                if not self._closed.wait(_AGAIN_SECONDS):
                    log(f"the beacon could not answer: {error.strerror}; goes on")
                continue
            with connection, suppress(OSError):
                connection.settimeout(_TIMEOUT_SECONDS)
                connection.sendall(self._word.encoded())

    def _ask(self, node: str, address: str) -> Word | None:
        try:
            with socket.create_connection(
                (address, self._config.beacon_port), timeout=_TIMEOUT_SECONDS
            ) as asked:
                content = b""
                while not content.endswith(b"\n") and len(content) < _MOST_BYTES:
                    part = asked.recv(_MOST_BYTES)
                    if not part:
                        break
                    content += part
        except OSError:
            return None
        return read_word(content, node, self._config)
