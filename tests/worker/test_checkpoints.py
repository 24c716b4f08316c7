"""When states are written, and what a fleet goes on from after all nodes have crashed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailtrain.worker.checkpoints import is_due

if TYPE_CHECKING:
    from collections.abc import Callable


def test_states_are_written_after_the_same_averagings_of_all() -> None:
    assert all(is_due(number, every=1, all_each=1) for number in range(9))
    assert [number for number in range(9) if is_due(number, every=3, all_each=1)] == [2, 5, 8]
    # Pairs in between: all average in rounds 3, 7, 11 and 15.
    assert [number for number in (3, 7, 11, 15) if is_due(number, every=2, all_each=4)] == [7, 15]


def test_after_a_crash_of_all_nodes_they_go_on_from_a_state_in_common(make_fleet: Callable[..., Any]) -> None:
    fleet = make_fleet(3, quorum=2, checkpoint_rounds=2)
    fleet.start()
    fleet.until(lambda: all(len(fleet.progress(index)) >= 3 for index in range(3)), 90, "three rounds")
    for index in range(3):
        fleet.kill(index)
    written = [
        {path.name for path in (fleet.run_dir(index) / "checkpoints").glob("round-*")} for index in range(3)
    ]
    assert all(int(name.removeprefix("round-")) % 2 for name in written[0])
    assert written[0] & (written[1] | written[2]), "the primary and at least one other have the same"
    before = [len(fleet.progress(index)) for index in range(3)]
    fleet.start()
    fleet.until(
        lambda: all(len(fleet.progress(index)) >= before[index] + 2 for index in range(3)), 90, "they go on"
    )
    for index in range(3):
        fleet.stop(index)
    again = [fleet.progress(index)[before[index]]["round"] for index in range(3)]
    newest = max(int(name.removeprefix("round-")) for names in written for name in names)
    assert min(again) == newest + 1
    digests: dict[int, set[str]] = {}
    for index in range(3):
        for line in fleet.progress(index)[before[index] :]:
            digests.setdefault(line["round"], set()).add(line["weights_sha256"])
    assert all(len(found) == 1 for found in digests.values())
