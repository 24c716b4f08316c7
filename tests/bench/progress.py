"""Progress, for whoever waits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(text: str) -> None:
    """Say one line."""
    print(text, file=sys.stderr, flush=True)


def counted(rounds: int, name: str) -> Iterator[int]:
    """The numbers of the rounds, told as they begin."""
    for number in range(rounds):
        say(f"{name}: round {number + 1} of {rounds}")
        yield number
