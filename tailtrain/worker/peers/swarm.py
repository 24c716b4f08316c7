"""This node among its peers: announcements, averaging, downloads.

Only this module and `averager` know hivemind.

hivemind's daemon listens on the tailnet address alone; relays, NAT mapping and AutoNAT are off. Nodes start
without bootstrap peers, which would have to be up first, and introduce themselves to each configured peer
that they do not see yet: that serves the first start, a late node, a restarted primary and a healed
partition alike.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from hivemind import DHT
from hivemind.p2p import PeerID
from torch import Tensor

from tailtrain.errors import PeerError, WorkerError
from tailtrain.worker.ledger import PROTOCOL, Contribution
from tailtrain.worker.peers import table_tasks
from tailtrain.worker.peers.admission import Bounds, Norms, Request
from tailtrain.worker.peers.attempt import Attempt
from tailtrain.worker.peers.averager import Averager
from tailtrain.worker.peers.forks import forget_in_forks, keep_still
from tailtrain.worker.peers.meeting import Meeting
from tailtrain.worker.peers.noticeboard import Noticeboard
from tailtrain.worker.peers.origin import Origin
from tailtrain.worker.weights import weights_sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from tailtrain.worker.announcements import Announcement
    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.exchange import SharedState
    from tailtrain.worker.peers.table_tasks import ClockReading
    from tailtrain.worker.reading.shards import Shards

_MATCHMAKING_SECONDS = 3.0  # how long a group waits for a member that is announced but does not come
_REQUEST_SECONDS = 2.4  # below the above, or matchmaking can lock up (hivemind's own warning)
_PART_SECONDS = 4.0  # how long a part of the fleet waits for its members: above matchmaking's
_TABLE_SECONDS = 5.0  # one look-up or store in the table, at most
_TABLE_ANSWER_SECONDS = 2.5
_TABLE_PAUSE_SECONDS = 4.0
_ANEW = "Nothing needs to be done: the worker starts again"
_START_SECONDS = 120.0  # a tenth of a core needs its time


class Swarm:
    """The connection to all peers of the run.

    Args:
        config: this node's configuration.
        size: how many weights are averaged.
        shards: of the run; messages are checked against them.
        current_state: what peers may download from this node.
    """

    def __init__(
        self, config: WorkerConfig, size: int, shards: Shards, current_state: Callable[[], SharedState]
    ) -> None:
        self._config, self._shards = config, shards
        own = config.coordination
        self._client = config.centralized and not config.is_primary
        self._addresses = {
            peer.node: (PeerID.from_base58(peer.peer_id), f"/ip4/{peer.address}/tcp/{peer.port}")
            for peer in own.peers
        }
        training = config.training
        forget_in_forks(current_state()[1])
        keep_still()
        self._dht = DHT(
            start=True,
            client_mode=self._client,
            host_maddrs=[f"/ip4/{own.address}/tcp/{own.port}"],
            identity_path=str(config.state_dir / "identity.key"),
            check_if_identity_free=False,
            use_relay=False,
            use_auto_relay=False,
            nat_port_map=False,
            auto_nat=False,
            startup_timeout=_START_SECONDS,
            cache_locally=False,
            cache_nearest=0,
            cache_on_store=False,
            wait_timeout=_TABLE_ANSWER_SECONDS,
            # A peer that does not answer is not asked again for so long, or a frozen one slows each look.
            # hivemind's own time grows without limit, and a returning primary stays unseen.
            blacklist_time=_TABLE_PAUSE_SECONDS,
            backoff_rate=1.0,
        )
        self._board, self._origin, self._current_state = (
            Noticeboard(self._dht, config),
            Origin.of(config),
            current_state,
        )
        self._refused: tuple[int, frozenset[str]] = (-1, frozenset())
        self._least = max(2, own.quorum if training.fault_tolerance else len(config.nodes))
        timeout = training.averaging_timeout_seconds
        members = {peer_id: node for node, (peer_id, _) in self._addresses.items()}
        self._averager = Averager(
            [torch.zeros(size)],
            config=config,
            members={**members, self._dht.peer_id: config.node},
            shards=shards,
            current_state=current_state,
            dht=self._dht,
            start=True,
            prefix=f"tailtrain-{PROTOCOL}-{config.run_id}",
            client_mode=self._client,
            target_group_size=len(config.nodes),
            initial_group_bits="0",
            min_matchmaking_time=_MATCHMAKING_SECONDS,
            request_timeout=_REQUEST_SECONDS,
            allreduce_timeout=timeout,
            next_chunk_timeout=max(2.0, timeout / 6),
            allow_state_sharing=not self._client,
        )

    def serves(self) -> set[str]:
        """Peers that can serve their state: client-mode peers accept no requests."""
        return {
            peer.node
            for peer in self._config.coordination.peers
            if peer.role == "primary" or not self._config.centralized
        }

    def ask_clock(self, node: str) -> Future[ClockReading | None]:
        """Begin to ask how far a peer's clock is from this node's; None comes if it does not answer."""
        peer_id = self._addresses[node][0].to_bytes()
        asked: Future[ClockReading | None] = self._dht.run_coroutine(
            partial(table_tasks.clock_offset, peer_id=peer_id), return_future=True
        )
        return asked

    def clock_of(self, node: str) -> ClockReading | None:
        """How far a peer's clock is from this node's; None if it does not answer."""
        return self.read_clock(self.ask_clock(node))

    @staticmethod
    def read_clock(asked: Future[ClockReading | None]) -> ClockReading | None:
        """What came of asking; None if no answer did."""
        try:
            return asked.result(timeout=_TABLE_SECONDS)
        except Exception:  # noqa: BLE001 - no answer, for whatever reason
            return None

    def introduce(self, nodes: Iterable[str]) -> None:
        """Connect to these peers, so that they and this node appear in each other's tables."""
        wanted, answering = set(nodes), self.serves()
        targets = [
            (peer_id.to_bytes(), address, node in answering)
            for node, (peer_id, address) in self._addresses.items()
            if node in wanted
        ]
        self._dht.run_coroutine(partial(table_tasks.introduce, targets=targets), return_future=True)

    def announce(self, said: Announcement, *, wait: bool = False) -> None:
        """Tell all peers; waits until they know only where asked to."""
        self._board.announce(said, wait=wait)

    def ask(self) -> Callable[[], dict[str, Announcement]]:
        """Start to look up what the peers announce; calling the result waits for it."""
        return self._board.ask()

    def view(self) -> dict[str, Announcement]:
        """All peers' announcements, without those of peers that are left out.

        Raises:
            WorkerError: a process of hivemind has ended.
        """
        self._require_processes()
        return self._board.ask()()

    @property
    def left_out(self) -> Mapping[str, str]:
        """Peers that are there, but of another run, version, code, data or plan: in plain words, which."""
        return self._board.left_out

    def average(
        self,
        vector: Tensor,
        own: Contribution,
        group_size: int,
        bits: str | None = None,
        base: Tensor | None = None,
    ) -> Attempt:
        """Begin to average `vector` with the peers that are in the same round.

        Args:
            vector: this node's weights, on the host.
            own: what this node brings; its tokens are its weight.
            group_size: how many nodes are expected, this one included.
            bits: where a part of the fleet meets: only nodes with the same bits average then, two at least,
                and nobody is waited for long. Without them all meet, the quorum at least.
            base: the weights that `own.base` is the digest of; the committed ones if none are given. Where
                weights travel compressed and all members have the same, only differences from them do.

        Raises:
            WorkerError: a process of hivemind has ended, or does not answer.
        """
        self._require_processes()
        if base is None:
            base = self._current_state()[1][0]
        if bits is None and group_size - len(self._refused[1]) < self._least:
            self._refused = (-1, frozenset())  # without these no averaging can be: they are tried again
        refused = self._refused[1] if self._refused[0] == own.round else frozenset()
        request = Request(own, Norms.of(vector, base), self._share(vector, base, own.base), refused)
        message = self._origin.stamp(request.to_message(self._shards))
        bounds = Bounds.of(self._config, request.norms, own, vector.numel())
        most = max(2, group_size - len(refused))
        if bits is None:  # the round is in the key that peers meet under, so different rounds never mix
            place, least = f"{own.round:b}", self._least
            timeout = self._config.training.averaging_timeout_seconds
        else:
            place, least, timeout = bits, 2, _PART_SECONDS
        self._averager.meet(Meeting(own.round, place, least, most, message, bounds, refused))
        control = self._averager.step(
            gather=message, weight=request.weight, timeout=timeout, allow_retries=False, wait=False
        )
        return Attempt(self._averager, control, partial(self._refuse, own.round))

    def _require_processes(self) -> None:
        """Raise unless all of hivemind lives: it starts no process again, so this one has to start anew."""
        if not (self._averager.is_alive() and self._dht.is_alive()):
            raise WorkerError("a process of hivemind has ended", host=self._config.node, fix=_ANEW)

    def _share(self, vector: Tensor, base: Tensor, digest: str) -> bool:
        """Give the averager's process the vectors; whether it has the weights that others may know, too."""
        with self._averager.get_tensors() as (shared,):
            shared.copy_(vector)
            if self._averager.base is None or weights_sha256(base) != digest:
                return False
            self._averager.base.copy_(base)
            return True

    def _refuse(self, number: int, nodes: frozenset[str]) -> None:
        """Leave these nodes out of what is left of this round."""
        before = self._refused[1] if self._refused[0] == number else frozenset()
        self._refused = (number, before | nodes - {self._config.node})

    def download(self, node: str) -> tuple[Any, list[Tensor]]:
        """A peer's committed state: metadata and tensors, not yet checked.

        Raises:
            PeerError: it did not arrive.
        """
        timeout = self._config.training.averaging_timeout_seconds
        try:
            state = self._averager.download_state(self._addresses[node][0], timeout)
        except FutureTimeoutError:
            state = None
        if state is None:
            raise PeerError("a peer's state did not arrive", host=node)
        return state

    def close(self) -> None:
        """End hivemind's processes, the daemon included."""
        self._averager.shutdown()
        self._dht.shutdown()


def open_swarm(
    config: WorkerConfig, size: int, shards: Shards, current_state: Callable[[], SharedState]
) -> Swarm:
    """Start listening.

    Raises:
        WorkerError: the identity is missing, or the address or port cannot be had.
    """
    identity: Path = config.state_dir / "identity.key"
    if not identity.is_file():
        raise WorkerError("this node has no peer identity", field=str(identity), fix="Deploy again")
    own = config.coordination
    try:
        return Swarm(config, size, shards, current_state)
    except Exception as error:  # the daemon reports everything as one class, with Go's text
        raise WorkerError(
            "cannot listen for peers",
            host=config.node,
            field=f"{own.address}:{own.port}",
            found=str(error),
            fix="Check that the address is this node's and that nothing else uses the port",
        ) from error
