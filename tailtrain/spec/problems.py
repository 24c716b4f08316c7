"""All that is wrong with one declaration, told at once."""

from __future__ import annotations

import difflib
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailtrain.errors import DataError, DeclarationError, InvalidDeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailtrain.errors import TailtrainError

_SHOWN_CHARACTERS = 80
_LONGEST_NAME = 253


class Problems:
    """What is wrong, gathered while the rest is looked at, so that all of it is told at once.

    Attributes:
        found: the problems so far, in the order in which they were found.
    """

    def __init__(self) -> None:
        self.found: list[TailtrainError] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep what the lines inside raise about a declaration or a data set, and go on after them."""
        try:
            yield
        except InvalidDeclarationError as error:
            self.found += error.problems
        except (DeclarationError, DataError) as error:
            self.found.append(error)

    def raise_if_any(self) -> None:
        """Raise what was found, or do nothing where that is nothing.

        Raises:
            TailtrainError: the one problem, or an InvalidDeclarationError with all of them.
        """
        if len(self.found) == 1:
            raise self.found[0]
        raise_if_any(self.found)


def raise_if_any(problems: Iterable[TailtrainError]) -> None:
    """Raises them together, or does nothing where there are none.

    Raises:
        InvalidDeclarationError: there is at least one problem.
    """
    found = tuple(problems)
    if found:
        raise InvalidDeclarationError(found)


def shown(value: object) -> str:
    """A value as it stands in Python, cut to a length that fits a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer too long, or lists too deep, for Python to write out
        text = f"a value of type {type(value).__name__}, too long to show"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def shown_name(name: object) -> str | None:
    """A name as it is, or its Python form where a terminal cannot show it; None for what is no text."""
    if not isinstance(name, str):
        return None
    return name if name.isprintable() and len(name) <= _LONGEST_NAME else shown(name)


def nearest(value: object, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The name that was most likely meant, whatever its case and punctuation; None where none is near."""
    if not isinstance(value, str):
        return None
    by_letters = {_letters(name): name for name in names}
    matches = difflib.get_close_matches(_letters(value), by_letters, n=1, cutoff=cutoff)
    return by_letters[matches[0]] if matches else None


def _letters(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.casefold())
