"""How the lab's commands fail: with a sentence, not a traceback."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

import click

from tailtrain.errors import TailtrainError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors of ours end it with their text and exit code 1."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except TailtrainError as error:
            raise click.ClickException(str(error)) from error

    return wrapper
