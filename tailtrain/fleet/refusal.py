"""Ending a pyinfra run with one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api.exceptions import PyinfraError

from tailtrain.exit_codes import EXIT_LOCKED
from tailtrain.planning.secrets import masked

if TYPE_CHECKING:
    from types import TracebackType


class Refused(PyinfraError):  # noqa: N818 - it is no fault of the program
    """Stops pyinfra, which prints the message and exits 1.

    Args:
        message: what stands against going on; secrets in it are masked.
    """

    def __init__(self, message: str) -> None:
        super().__init__(masked(message, prose=True))

    # pyinfra would put the file and line that raised it before the message: right for an error in a
    # deploy file, noise for a sentence meant for the person. Context managers set this on the way up.
    @property
    def __traceback__(self) -> TracebackType | None:
        return None

    @__traceback__.setter
    def __traceback__(self, _: TracebackType | None) -> None:
        pass


def refused_as_locked(message: str) -> Exception:
    """What ends pyinfra's command with this message and exit code 4: somebody else is deploying.

    pyinfra's own errors end it with 1; only those of its command line have a code of their own.
    """
    # Importing it changes the process: it has gevent replace the blocking calls. In pyinfra's it is there.
    from pyinfra_cli.exceptions import CliError  # noqa: PLC0415

    error: Exception = CliError(message)
    error.exit_code = EXIT_LOCKED  # type: ignore[attr-defined]
    return error
