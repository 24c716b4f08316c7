"""What `tailtrain status` shows of a fleet."""

from __future__ import annotations

from typing import Any

from tailtrain.fleet.status import render_status

TRAINING: dict[str, Any] = {"unit": "active", "state": "training", "round": 3, "tokens": 12_000}


def test_membership_shows_where_there_is_one() -> None:
    alone = render_status({"qfox": TRAINING, "judge": {"unreachable": "no answer"}})
    assert "sees" not in alone
    fleet = {"qfox": TRAINING | {"sees": 2}, "judge": {"unreachable": "no answer"}, "ana": {"unit": "failed"}}
    head, *rows = render_status(fleet).splitlines()
    assert head.split()[-1] == "sees"
    assert rows[0].endswith("2 of 3")
    assert rows[1].split() == ["judge", "unknown", "unreachable"]
    assert rows[2].split() == ["ana", "failed", "no", "run"]
