"""Hosts say again only what has changed since they were last asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.errors import FleetError
from tailtrain.fleet.memory import Memory
from tailtrain.fleet.probe_program import news

if TYPE_CHECKING:
    from pathlib import Path

ANSWER: dict[str, Any] = {
    "files": {"worker.json": "x" * 5000, "gone": None},
    "chunks": {"sizes": {"a": 1}, "damaged": {}},
    "hardware": {"clock": 1.5, "cores": 2},
    "uid": 0,
}


def ask(memory: Memory, found: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """What a host that found this is understood to say, and what it really said."""
    said = news(found, memory.known("judge"))
    return memory.whole("judge", said), set(said["parts"])


def test_only_what_changed_is_said_again(tmp_path: Path) -> None:
    assert ask(Memory(tmp_path), ANSWER) == (ANSWER, set(ANSWER))
    assert ask(Memory(tmp_path), ANSWER) == (ANSWER, set())
    later = ANSWER | {"hardware": {"clock": 2.5, "cores": 2}}
    assert ask(Memory(tmp_path), later) == (later, {"hardware"})
    back = ANSWER | {"uid": 1000}
    assert ask(Memory(tmp_path), back) == (back, {"hardware", "uid"}), "only the last answer is remembered"


def test_hosts_are_told_apart(tmp_path: Path) -> None:
    ask(Memory(tmp_path), ANSWER)
    assert Memory(tmp_path).known("qfox") == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"text"'])
def test_a_damaged_memory_remembers_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "judge.json").write_bytes(content)
    assert ask(Memory(tmp_path), ANSWER) == (ANSWER, set(ANSWER))
    assert ask(Memory(tmp_path), ANSWER) == (ANSWER, set())


def test_without_a_folder_everything_is_said_each_time() -> None:
    memory = Memory(None)
    for _ in range(2):
        assert ask(memory, ANSWER) == (ANSWER, set(ANSWER))


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert ask(Memory(tmp_path / "file" / "answers"), ANSWER) == (ANSWER, set(ANSWER))


def test_a_host_that_leaves_out_what_nobody_knows_is_named(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.known("judge")
    said = news(ANSWER, [])
    del said["parts"]["uid"]
    with pytest.raises(FleetError, match=r"judge: left out a part of its answer \(found uid\)"):
        memory.whole("judge", said)
