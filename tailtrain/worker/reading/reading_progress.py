"""How far each shard of the run has been read, and how two nodes' views of that become one.

For each shard: the epoch, the shelves of it that are finished, and for shelves that were begun the next
window. Two views join to what either knows: the later epoch, or in the same epoch the union of what is
finished and the farther of two places in a shelf. That join is commutative, associative and idempotent (a
join-semilattice), so members of an averaging come to the same view in whatever order they hear each other,
and hearing something twice changes nothing. An epoch of which all shelves are finished is the beginning of
the next one.

What comes from the network is checked before a value is used; shards that this node's configuration does not
know, or knows with other ranges, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tailtrain.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailtrain.worker.reading.shards import Shard, Shards

_MOST = 1 << 53
_MOST_NAMES = 4096  # domains or nodes in one message
_MOST_NUMBERS = 1 << 16  # of one shard
_SHARES_DIGITS = 16


class Place(NamedTuple):
    """Where reading goes on in a shelf.

    Attributes:
        record: the first of the block at hand.
        window: the next one in the block.
        done: how many records' worth was read; it follows from the others, for who has not the text.
    """

    record: int
    window: int
    done: int


START = Place(0, 0, 0)


@dataclass(frozen=True)
class ShardProgress:
    """How far one shard has been read.

    Attributes:
        epoch: the epoch at hand.
        finished: its shelves that were read to their ends; never all of them.
        begun: for other shelves of it, where reading goes on.
    """

    epoch: int = 0
    finished: frozenset[int] = frozenset()
    begun: Mapping[int, Place] = field(default_factory=dict)

    def joined(self, other: ShardProgress, size: int) -> ShardProgress:
        """What either of two views knows of a shard of `size` shelves."""
        if self.epoch != other.epoch:
            return self if self.epoch > other.epoch else other
        return progress_of(
            self.epoch,
            self.finished | other.finished,
            {
                shelf: max(self.begun.get(shelf, START), other.begun.get(shelf, START))
                for shelf in {*self.begun, *other.begun}
            },
            size,
        )

    def share(self, shard: Shard) -> float:
        """How much of the epoch is done, 0 to 1."""
        if not shard.records or not (self.finished or self.begun):
            return 0.0
        shelves = shard.shelves(self.epoch)
        done = sum(shelves[index].records for index in self.finished)
        done += sum(min(place.done, shelves[index].records) for index, place in self.begun.items())
        return done / shard.records

    def to_list(self, shares: str) -> list[Any]:
        """As sent and stored: finished shelves as runs [first, last, ...], begun ones in fours."""
        runs: list[int] = []
        for shelf in sorted(self.finished):
            if runs and runs[-1] == shelf - 1:
                runs[-1] = shelf
            else:
                runs += [shelf, shelf]
        begun = [number for shelf in sorted(self.begun) for number in (shelf, *self.begun[shelf])]
        return [shares, self.epoch, runs, begun]


def progress_of(epoch: int, finished: Iterable[int], begun: Mapping[int, Place], size: int) -> ShardProgress:
    """The progress in its one form: all shelves finished is the next epoch, a finished one is not begun."""
    done = frozenset(finished)
    if size and len(done) == size:
        return ShardProgress(epoch + 1)
    return ShardProgress(
        epoch, done, {shelf: place for shelf, place in begun.items() if shelf not in done and place > START}
    )


Progress = Mapping[tuple[str, str], ShardProgress]
"""How far shards have been read, by domain and node; one that is not named has not been begun."""

NOTHING_READ = ShardProgress()


def join(views: Iterable[Progress], shards: Shards) -> Progress:
    """What any of these views knows."""
    joined: dict[tuple[str, str], ShardProgress] = {}
    for view in views:
        for key, progress in view.items():
            joined[key] = joined.get(key, NOTHING_READ).joined(progress, shards.by_key[key].size)
    return joined


def progress_to_json(progress: Progress, shards: Shards) -> dict[str, dict[str, list[Any]]]:
    """As sent and stored; shards that were not begun are left out."""
    sent: dict[str, dict[str, list[Any]]] = {}
    for (domain, node), one in sorted(progress.items()):
        if one != NOTHING_READ:
            shares = shards.by_key[domain, node].shares
            sent.setdefault(domain, {})[node] = one.to_list(shares)
    return sent


def progress_from_json(raw: Any, shards: Shards, who: str, *, own: bool = False) -> Progress:
    """Check and read a view.

    Args:
        raw: as it came.
        shards: what this node's configuration knows.
        who: whose view it is.
        own: it is this node's own, of an earlier configuration perhaps: where a shard's ranges have changed
            since, its next epoch begins. Of others, such shards are left out.

    Raises:
        PeerError: it is not a view, or it names shelves that a shard does not have.
    """
    found: dict[tuple[str, str], ShardProgress] = {}
    for domain, nodes in _names(raw, who):
        for node, entry in _names(nodes, who):
            shares, read = _read(entry, who)
            shard = shards.by_key.get((domain, node))
            if shard is None:
                continue
            if shares == shard.shares:
                _check_places(read, shard, who)
                found[domain, node] = progress_of(read.epoch, read.finished, read.begun, shard.size)
            elif own:
                found[domain, node] = ShardProgress(read.epoch + 1)
    return found


def adopted_progress(raw: Any, shards: Shards, who: str, mine: Progress) -> Progress:
    """The progress that belongs to a peer's state; of shards that it knows with other ranges, this node's.

    Raises:
        PeerError: as for `progress_from_json`.
    """
    theirs = progress_from_json(raw, shards, who)
    kept = {key: one for key, one in mine.items() if key not in theirs and key[1] in raw.get(key[0], ())}
    return {**kept, **theirs}


def epochs_of(progress: Progress, shards: Shards) -> dict[str, dict[str, list[float]]]:
    """For each domain and node, the epoch of its shard, and which share of it is done, for reading."""
    epochs: dict[str, dict[str, list[float]]] = {}
    for (domain, node), shard in sorted(shards.by_key.items()):
        if shard.records:
            one = progress.get(shard.key, NOTHING_READ)
            epochs.setdefault(domain, {})[node] = [one.epoch, round(one.share(shard), 4)]
    return epochs


def _names(raw: Any, who: str) -> Iterable[tuple[str, Any]]:
    """The items of a bounded mapping of names."""
    if not isinstance(raw, dict) or len(raw) > _MOST_NAMES or not all(isinstance(name, str) for name in raw):
        raise PeerError("a reading progress is not acceptable", host=who, found=repr(raw)[:80])
    return raw.items()


def _read(raw: Any, who: str) -> tuple[str, ShardProgress]:
    """One shard's entry, by its shape alone: its digest, and what it says."""
    match raw:
        case [str(shares), int(epoch), [*runs], [*begun]] if (
            len(shares) == _SHARES_DIGITS
            and _whole([epoch, *runs, *begun])
            and len(runs) + len(begun) <= _MOST_NUMBERS
            and len(runs) % 2 == 0
            and len(begun) % 4 == 0
            and _rising(runs)
        ):
            shelves = [range(runs[k], runs[k + 1] + 1) for k in range(0, len(runs), 2)]
            if sum(map(len, shelves)) <= _MOST_NUMBERS:
                places = {begun[k]: Place(*begun[k + 1 : k + 4]) for k in range(0, len(begun), 4)}
                return shares, ShardProgress(epoch, frozenset().union(*shelves), places)
    raise PeerError("a reading progress is not acceptable", host=who, found=repr(raw)[:80])


def _whole(numbers: Sequence[Any]) -> bool:
    return all(type(number) is int and 0 <= number <= _MOST for number in numbers)


def _rising(runs: Sequence[int]) -> bool:
    """Whether each run ends where it began or later, and the next one begins after it."""
    return all(
        later >= earlier if index % 2 == 0 else later > earlier
        for index, (earlier, later) in enumerate(pairwise(runs))
    )


def _check_places(progress: ShardProgress, shard: Shard, who: str) -> None:
    shelves = shard.shelves(progress.epoch) if progress.begun else ()
    for index in {*progress.finished, *progress.begun}:
        if index >= shard.size:
            raise PeerError("a shelf that a shard does not have", host=who, field=shard.node, found=index)
    for index, place in progress.begun.items():
        most = max(place.record + 1, place.done)
        if most > shelves[index].records:
            raise PeerError("a record that a shelf does not have", host=who, field=shard.node, found=most)
