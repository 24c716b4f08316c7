"""measured.json: smoothed, gone on from in the same run, never in the way of training."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.planning import memory
from tailtrain.planning.settings import ModelSettings
from tailtrain.worker.config import ModelConfig, WorkerConfig
from tailtrain.worker.measured import FILE, Measurements, parameters_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailtrain.worker.trainer import Work

MODEL = ModelConfig(layers=4, width=128, heads=4, context=128)


@dataclass(frozen=True)
class Done:
    """As `trainer.Work`, without torch."""

    tokens: int = 1000
    train_seconds: float = 2.0
    cpu_seconds: float = 2.0
    loss: float | None = 1.0
    records: Mapping[str, int] = field(default_factory=dict)


def measuring(path: Path, run: str = "a" * 16) -> Measurements:
    return Measurements(path, cast("WorkerConfig", SimpleNamespace(run_id=run, model=MODEL)))


def work(tokens: int = 1000, seconds: float = 2.0) -> Work:
    return cast("Work", Done(tokens, seconds))


def written(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def test_says_what_a_round_took(tmp_path: Path) -> None:
    path = tmp_path / FILE
    measuring(path).after(work(), averaging_seconds=0.5, moved_bytes=3e6, round_seconds=2.6)
    found = written(path)
    assert found.pop("at") > 0
    assert found == {
        "run": "a" * 16,
        "parameters": parameters_of(MODEL),
        "tokens_per_second": 500.0,
        "bytes_per_second": 6e6,
        "averaging_seconds": 0.5,
        "round_seconds": 2.6,
    }
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_follows_a_changed_speed_and_forgets_nothing_in_a_round_without_work(tmp_path: Path) -> None:
    measured = measuring(tmp_path / FILE)
    measured.after(work(1000), 0.5, 3e6, 2.5)
    measured.after(work(100), 0.5, 3e6, 2.5)
    assert measured.speed.smoothed == pytest.approx(0.7 * 50 + 0.3 * 500)
    before = measured.speed
    measured.after(work(0, 0.0), 0.0, 0.0, 0.0)
    assert measured.speed == before
    assert written(tmp_path / FILE)["bytes_per_second"] == 6e6


def test_goes_on_in_the_same_run_and_begins_anew_in_another(tmp_path: Path) -> None:
    path = tmp_path / FILE
    measuring(path).after(work(), 0.5, 3e6, 2.5)
    assert measuring(path).speed.smoothed == 500.0
    assert measuring(path, run="b" * 16).speed.smoothed == 0.0


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"run": "aaaaaaaaaaaaaaaa", "tokens_per_second": "fast"}', b"\xff"]
)
def test_a_damaged_file_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    assert measuring(path).speed.smoothed == 0.0


def test_a_file_that_cannot_be_written_is_said_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    measured = measuring(blocked / FILE)
    measured.after(work(), 0.5, 3e6, 2.5)
    assert measured.speed.smoothed == 500.0
    said = capsys.readouterr()
    assert "cannot be written" in said.out + said.err


@given(st.integers(1, 64), st.integers(1, 64).map(lambda width: 8 * width), st.integers(8, 4096))
def test_counts_parameters_as_the_plan_does(layers: int, width: int, context: int) -> None:
    sizes = {"layers": layers, "width": width, "heads": 1, "context": context}
    assert parameters_of(ModelConfig(**sizes)) == memory.parameters(ModelSettings(**sizes))
