"""Data sets that cannot be learned from, or judged by, are refused before any host is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailtrain.data import cache
from tailtrain.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.data.manifest import Manifest


def _cut(folder: Path, texts: list[str], fraction: float) -> Manifest:
    file = folder / "texts.parquet"
    pq.write_table(pa.table({"text": texts}), file)
    return cache.ensure_dataset(file, "natural", folder / "cache", heldout_fraction=fraction)


@pytest.mark.parametrize(
    ("texts", "fraction", "problem"),
    [
        (["", "", ""], 0.1, "every record to train on is empty"),
        (["one", "two", "three"], 0.0, "no text is held out"),
        (["same"] * 9, 0.1, "no text is held out"),
    ],
)
def test_a_data_set_without_text_on_either_side_is_refused(
    tmp_path: Path, texts: list[str], fraction: float, problem: str
) -> None:
    from tailtrain.fleet.datasets import require_text  # noqa: PLC0415 - imports pyinfra

    with pytest.raises(DataError, match=problem):
        require_text("texts.parquet", _cut(tmp_path, texts, fraction))


def test_a_data_set_with_text_on_both_sides_is_taken(tmp_path: Path) -> None:
    from tailtrain.fleet.datasets import require_text  # noqa: PLC0415 - imports pyinfra

    require_text("texts.parquet", _cut(tmp_path, ["one", "two", "three"], 0.1))
