"""This node among its peers: announcements, averaging, downloads.

Only this module and `averager` know hivemind.

hivemind's daemon listens on the tailnet address alone; relays, NAT mapping and AutoNAT are off. Nodes start
without bootstrap peers, which would have to be up first, and introduce themselves to each configured peer
that they do not see yet: that serves the first start, a late node, a restarted primary and a healed
partition alike.
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from hivemind import DHT
from hivemind.p2p import PeerID
from hivemind.utils import get_dht_time
from torch import Tensor

from tailtrain.errors import PeerError, WorkerError
from tailtrain.worker import table_tasks
from tailtrain.worker.announcements import Announcement, read_announcement
from tailtrain.worker.averager import Averager, Meeting
from tailtrain.worker.exchange import Averaged, SharedState
from tailtrain.worker.ledger import PROTOCOL, Contribution, read_contribution
from tailtrain.worker.status import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.shards import Shards

_MATCHMAKING_SECONDS = 3.0  # how long a group waits for a member that is announced but does not come
_REQUEST_SECONDS = 2.4  # below the above, or matchmaking can lock up (hivemind's own warning)
_PART_SECONDS = (
    4.0  # how long a part of the fleet waits for its members: above matchmaking's, or it is no try
)
_TABLE_SECONDS = 5.0  # one look-up or store in the table, at most
_START_SECONDS = 120.0  # a tenth of a core needs its time
_NO_TOKENS_WEIGHT = 1e-6  # hivemind wants a positive weight; beside whole tokens it changes no float32 bit


class Attempt:
    """One try at an averaging, running in the background."""

    def __init__(self, averager: Averager, control: Any, members: dict[PeerID, str], shards: Shards) -> None:
        self._averager, self._control = averager, control
        self._members, self._shards = members, shards

    def wait(self, seconds: float) -> Averaged | None:
        """The outcome, or None if it is not there after `seconds`.

        Raises:
            PeerError: no group was found in time, a peer failed, or what came is not acceptable.
        """
        try:
            gathered = self._control.result(timeout=seconds)
        except FutureTimeoutError:
            if self._control.done():  # the averaging itself timed out
                raise PeerError("the averaging took too long") from None
            return None
        except CancelledError:
            raise PeerError("the averaging was cancelled") from None
        except Exception as error:  # hivemind raises many classes; none of them ends this node
            no_group = "could not find a group" in str(error)
            problem = "no group came together in time" if no_group else "a peer failed while averaging"
            raise PeerError(problem) from error
        group = {
            self._members[peer]: read_contribution(said, self._shards) for peer, said in gathered.items()
        }
        with self._averager.get_tensors() as (vector,):
            return Averaged(vector.clone(), group)

    def cancel(self) -> None:
        """Give up, so that others do not wait for this node."""
        with suppress(Exception):  # it may have ended meanwhile, in any way
            self._control.cancel()


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
        self._key = f"tailtrain.{PROTOCOL}.{config.run_id}.nodes"
        # Longer than any pause between two announcements of a live node, and always the same: the table keeps
        # the entry that expires last, so a node's newer word must expire after its older one.
        training = config.training
        self._lifetime = training.round_seconds + 3 * training.averaging_timeout_seconds + 60.0
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
            blacklist_time=1.0,  # hivemind's own grows without limit, and a returning primary stays unseen
            backoff_rate=1.0,
        )
        self._least = max(2, own.quorum if training.fault_tolerance else len(config.nodes))
        timeout = training.averaging_timeout_seconds
        self._members = {peer_id: node for node, (peer_id, _) in self._addresses.items()}
        self._members[self._dht.peer_id] = config.node
        self._averager = Averager(
            [torch.zeros(size)],
            members=self._members,
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

    def clock_offset(self, node: str) -> float | None:
        """How far a peer's clock is ahead of this node's, in seconds; None if it does not answer.

        Half of the round trip is taken off, as NTP does; the error is at most the other half.
        """
        peer_id = self._addresses[node][0].to_bytes()
        asked = self._dht.run_coroutine(
            partial(table_tasks.clock_offset, peer_id=peer_id), return_future=True
        )
        try:
            offset: float | None = asked.result(timeout=_TABLE_SECONDS)
        except Exception:  # noqa: BLE001 - no answer, for whatever reason
            return None
        return offset

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
        stored = self._dht.store(
            self._key,
            subkey=said.node,
            value=said.to_message(),
            expiration_time=get_dht_time() + self._lifetime,
            return_future=True,
        )
        if wait:
            with suppress(Exception):  # nobody may be there any more
                stored.result(timeout=_TABLE_SECONDS)

    def ask(self) -> Callable[[], dict[str, Announcement]]:
        """Start to look up all announcements; calling the result waits for them.

        This node's own is left out, as are those that are not acceptable.
        """
        future = self._dht.get(self._key, latest=True, return_future=True)

        def answer() -> dict[str, Announcement]:
            try:
                found = future.result(timeout=_TABLE_SECONDS)
            except Exception:  # noqa: BLE001 - a look-up that fails is a look-up that found nothing
                return {}
            return self._read(found)

        return answer

    def view(self) -> dict[str, Announcement]:
        """All peers' announcements."""
        return self.ask()()

    def _read(self, found: Any) -> dict[str, Announcement]:
        view: dict[str, Announcement] = {}
        if found is None or not isinstance(found.value, dict):
            return view
        for name, entry in found.value.items():
            if name not in self._addresses:
                continue
            try:
                view[name] = read_announcement(entry.value, name)
            except PeerError as error:
                log(f"ignored: {error}")
        return view

    def average(self, vector: Tensor, own: Contribution, group_size: int, bits: str | None = None) -> Attempt:
        """Begin to average `vector` with the peers that are in the same round.

        Args:
            vector: this node's weights, on the host.
            own: what this node brings; its tokens are its weight.
            group_size: how many nodes are expected, this one included.
            bits: where a part of the fleet meets: only nodes with the same bits average then, two at least,
                and nobody is waited for long. Without them all meet, the quorum at least.
        """
        with self._averager.get_tensors() as (shared,):
            shared.copy_(vector)
        most = max(2, group_size)
        if bits is None:  # the round is in the key that peers meet under, so different rounds never mix
            meeting = Meeting(own.round, f"{own.round:b}", self._least, most)
            timeout = self._config.training.averaging_timeout_seconds
        else:
            meeting, timeout = Meeting(own.round, bits, 2, most), _PART_SECONDS
        self._averager.meet(meeting)
        control = self._averager.step(
            gather=own.to_message(self._shards),
            weight=float(own.tokens) or _NO_TOKENS_WEIGHT,
            timeout=timeout,
            allow_retries=False,
            wait=False,
        )
        return Attempt(self._averager, control, self._members, self._shards)

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
