"""pyinfra's question whether to go on without a host."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyinfra.api.state import StateStage

if TYPE_CHECKING:
    from pyinfra.api.state import State


def settle_prompt(state: State) -> None:
    """Answer pyinfra's question whether to go on without a host, where nobody is there to answer it.

    Without `-y` pyinfra asks when a host cannot be connected to; with no terminal that ends in a traceback.
    It goes on with the other hosts then, as with `-y`.
    """
    ask = state.should_raise_failed_hosts
    if ask is None or sys.stdin.isatty():
        return

    def answer(state: State) -> bool:
        return state.current_stage != StateStage.Connect and bool(ask(state))

    state.should_raise_failed_hosts = answer
