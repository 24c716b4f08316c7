"""The demo's data sets: real, repeatable, big enough on any machine, and not made twice."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tailtrain.data import demo
from tailtrain.data.demo import build_demo_datasets
from tailtrain.data.inspect import inspect_parquet

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build_demo_datasets(tmp_path_factory.mktemp("demo"))


def test_both_are_fit_to_train_on_and_within_their_caps(built: tuple[Path, Path]) -> None:
    prose, code = built
    assert inspect_parquet(prose).text_column == "text"
    assert inspect_parquet(code).text_column == "content"
    for path, cap in ((prose, demo.PROSE_BYTES), (code, demo.CODE_BYTES)):
        texts = pq.read_table(path).column(0).to_pylist()
        assert 1_000_000 < sum(len(text.encode()) for text in texts) <= cap
        assert len(texts) > 500
        assert len(set(texts)) == len(texts)
    assert set(pq.read_table(code).column("language").to_pylist()) == {"Python"}


def test_no_module_is_in_both(built: tuple[Path, Path]) -> None:
    """Else a docstring that is held out in one domain could be trained on in the other."""
    prose, code = (set(pq.read_table(path).column("source").to_pylist()) for path in built)
    assert not prose & code


def test_a_second_time_nothing_is_made(built: tuple[Path, Path]) -> None:
    before = [path.stat() for path in built]
    assert build_demo_datasets(built[0].parent) == built
    assert [path.stat().st_mtime_ns for path in built] == [status.st_mtime_ns for status in before]


def test_made_again_they_are_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copy(built[0], tmp_path / "prose.parquet")
    (tmp_path / "code.parquet").write_bytes(b"damaged")
    again = build_demo_datasets(tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_a_machine_without_documentation_has_enough_prose_in_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_LICENCES", tmp_path / "none")
    monkeypatch.setattr(demo, "_DOCUMENTATION", tmp_path / "none")
    prose, _ = build_demo_datasets(tmp_path)
    texts = pq.read_table(prose).column("text").to_pylist()
    assert sum(len(text.encode()) for text in texts) > 1_000_000
