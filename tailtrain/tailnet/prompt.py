"""What pyinfra says and asks where hosts cannot be connected to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyinfra.api.state import StateStage

from tailtrain.errors import DaemonError

if TYPE_CHECKING:
    from pyinfra.api.state import State

    from tailtrain.errors import TailtrainError

_said: WeakKeyDictionary[State, str] = WeakKeyDictionary()


def said_once(state: State, error: TailtrainError) -> str:
    """The text for one host: what is wrong with this machine is said whole for the first host alone."""
    text = str(error)
    if not isinstance(error, DaemonError):
        return text
    if _said.get(state) == text:
        return "not asked, for the reason said above"
    _said[state] = text
    return text


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
