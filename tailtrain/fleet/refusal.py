"""Ending a pyinfra run with one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api.exceptions import PyinfraError

if TYPE_CHECKING:
    from types import TracebackType


class Refused(PyinfraError):  # noqa: N818 - it is no fault of the program
    """Stops pyinfra, which prints the message and exits 1."""

    # pyinfra would put the file and line that raised it before the message: right for an error in a
    # deploy file, noise for a sentence meant for the person. Context managers set this on the way up.
    @property
    def __traceback__(self) -> TracebackType | None:
        return None

    @__traceback__.setter
    def __traceback__(self, _: TracebackType | None) -> None:
        pass
