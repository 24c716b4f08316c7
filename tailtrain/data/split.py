"""Which records are held out: decided by a record's text alone, before anything else is known of it.

With h the first eight bytes of SHA-256(text as UTF-8), read as a big-endian number, a record is held out when

    h < fraction * 2**64

So equal texts fall on one side, the split does not depend on order, chunks, fleet or seed, and a record that
is held out today stays so in a longer version of the data set. Two exceptions keep small data sets usable,
where there are at least two different texts and the fraction is above 0: if no record is held out, those with
the smallest SHA-256 are; if none is left to train on, those with the largest go back. If all texts are
equal, all are for training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from tailtrain.data.reading import text_spans
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

_PREFIX = 8


@dataclass(frozen=True)
class Split:
    """The rule that says whether a record is held out.

    Attributes:
        threshold: SHA-256 hashes whose first eight bytes are below this are held out.
        also_heldout: the one hash that is held out although it is not below.
        never_heldout: the one hash that is trained on although it is below.
    """

    threshold: bytes
    also_heldout: bytes | None = None
    never_heldout: bytes | None = None

    def heldout(self, digest: bytes) -> bool:
        """Say whether the record whose text has this SHA-256 is held out."""
        if digest[:_PREFIX] < self.threshold:
            return digest != self.never_heldout
        return digest == self.also_heldout

    def mask(self, batch: pa.RecordBatch) -> list[bool]:
        """Say it for each record of a batch."""
        data, spans = text_spans(batch)
        heldout = self.heldout
        return [heldout(sha256(data[spans[row] : spans[row + 1]]).digest()) for row in range(len(spans) - 1)]


@dataclass(frozen=True)
class Totals:
    """What falls on each side of the split: records, and bytes of text."""

    train_records: int
    train_bytes: int
    heldout_records: int
    heldout_bytes: int


@dataclass
class _Extreme:
    """The smallest or largest hash seen, with the records and bytes of text that have it."""

    digest: bytes
    records: int = 0
    text_bytes: int = 0


def decide(
    batches: Iterable[pa.RecordBatch], fraction: float, progress: Callable[[int], None]
) -> tuple[Split, Totals]:
    """Read all records once and settle the rule, its exceptions included.

    Args:
        batches: all records of the data set.
        fraction: how much to hold out, 0 or more and below 1.
        progress: is called with the number of records of each batch.

    Raises:
        DataError: the fraction is out of range.
    """
    split = Split(_threshold(fraction))
    smallest, largest = _Extreme(b"\xff" * 33), _Extreme(b"")
    records = [0, 0]
    text_bytes = [0, 0]
    for batch in batches:
        data, spans = text_spans(batch)
        for row in range(len(spans) - 1):
            start, stop = spans[row], spans[row + 1]
            digest = sha256(data[start:stop]).digest()
            side = digest[:_PREFIX] < split.threshold
            records[side] += 1
            text_bytes[side] += stop - start
            if digest <= smallest.digest:
                smallest = _seen(smallest, digest, stop - start)
            if digest >= largest.digest:
                largest = _seen(largest, digest, stop - start)
        progress(batch.num_rows)
    totals = Totals(records[0], text_bytes[0], records[1], text_bytes[1])
    if smallest.digest == largest.digest:
        everything = Totals(sum(records), sum(text_bytes), 0, 0)
        return replace(split, threshold=b""), everything
    if fraction > 0 and totals.heldout_records == 0:
        return replace(split, also_heldout=smallest.digest), _shift(totals, smallest, +1)
    if totals.train_records == 0:
        return replace(split, never_heldout=largest.digest), _shift(totals, largest, -1)
    return split, totals


def _threshold(fraction: float) -> bytes:
    if not 0 <= fraction < 1:
        raise DataError(
            "the held-out fraction is out of range",
            field="heldout_fraction",
            found=fraction,
            expected="0 or more and below 1",
        )
    # Exact: scaling a float by a power of two loses nothing.
    return int(fraction * 2.0**64).to_bytes(_PREFIX, "big")


def _seen(extreme: _Extreme, digest: bytes, size: int) -> _Extreme:
    if digest != extreme.digest:
        return _Extreme(digest, 1, size)
    return _Extreme(digest, extreme.records + 1, extreme.text_bytes + size)


def _shift(totals: Totals, extreme: _Extreme, sign: int) -> Totals:
    """Move the records with one hash to the held-out side (+1) or back (-1)."""
    records, text_bytes = sign * extreme.records, sign * extreme.text_bytes
    return Totals(
        totals.train_records - records,
        totals.train_bytes - text_bytes,
        totals.heldout_records + records,
        totals.heldout_bytes + text_bytes,
    )
