"""Running one command: standard input and output at the same time, binary input, ends that tell the truth.

pyinfra writes all of the input before it reads any output, and expects lines of text. Here the two are
concurrent, so neither side can block the other, and a command that stops reading early still has its exit
code and its error output reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import gevent
from pyinfra import logger
from pyinfra.api.output import echo
from pyinfra.connectors.util import (
    CommandOutput,
    execute_command_with_sudo_retry,
    make_unix_command_for_host,
    read_output_buffers,
    write_stdin,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyinfra.api.command import StringCommand
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

PIECE_BYTES = 1 << 17
"""Larger pieces only cost copies: SSH cuts them into packets of 32 KiB."""


class _RawBytes(bytes):
    """Bytes that pass through pyinfra's `write_stdin`, which treats each item as a line of text."""

    __slots__ = ()

    def endswith(self, *_: object) -> bool:
        return True

    def encode(self, *_: object) -> bytes:
        return self


class BinaryStdin(list[str]):
    """Raw bytes for a command's standard input, streamed in bounded memory.

    Give it to `host.run_shell_command(command, _stdin=BinaryStdin(chunks))`; any pyinfra connector that uses
    pyinfra's `write_stdin` sends the bytes unchanged. It is a list only because pyinfra asks for one.

    Args:
        chunks: what to send. An iterator can be sent once; give something that can be iterated again if the
            command may be repeated, as pyinfra does after asking for a sudo password.

    Raises:
        OSError: an iterator was to be sent a second time.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._spent = False

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        chunks = iter(self._chunks)
        if chunks is self._chunks:
            if self._spent:
                message = "the input was already sent once and cannot be read again"
                raise OSError(message)
            self._spent = True
        for chunk in chunks:
            for start in range(0, len(chunk), PIECE_BYTES):
                yield _RawBytes(chunk[start : start + PIECE_BYTES])  # type: ignore[misc]  # see the class


class Running(Protocol):
    """A started command."""

    stdin: Any
    """A binary file that is written and closed."""
    stdout: Iterable[bytes]
    stderr: Iterable[bytes]

    def wait(self) -> int:
        """Give the exit code.

        Raises:
            OSError: the connection was lost before there was one.
        """

    def abort(self) -> None:
        """End the command as far as that is possible, so that its output, which somebody reads, ends."""

    def close(self) -> None:
        """End the command if it still runs, and let go of its files; nobody reads any more."""


def run_command(
    state: State,
    host: Host,
    command: StringCommand,
    start: Callable[[str, bool], Running],
    *,
    print_output: bool,
    print_input: bool,
    arguments: dict[str, Any],
) -> tuple[bool, CommandOutput]:
    """Run a command as pyinfra's connectors do.

    Args:
        state: pyinfra's state.
        host: pyinfra's host.
        command: what to run, before sudo and the shell are put around it.
        start: starts a shell command line; its second argument asks for a terminal.
        print_output: show what the command prints.
        print_input: show the command line.
        arguments: pyinfra's connector arguments.

    Raises:
        TimeoutError: the command took longer than `_timeout` seconds.
        OSError: the connection was lost, or the input could not be read.
    """
    get_pty = bool(arguments.pop("_get_pty", False))
    timeout = arguments.pop("_timeout", None)
    stdin = arguments.pop("_stdin", None)
    success_exit_codes = arguments.pop("_success_exit_codes", None) or [0]

    def execute() -> tuple[int, CommandOutput]:
        unix_command = make_unix_command_for_host(state, host, command, **arguments)
        logger.debug("Running command on %s: (pty=%s) %s", host.name, get_pty, unix_command)
        if print_input:
            echo(f"{host.print_prefix}>>> {unix_command}", err=True)
        running = start(unix_command.get_raw_value(), get_pty)
        return _converse(running, stdin, timeout, print_output=print_output, prefix=host.print_prefix)

    code, output = execute_command_with_sudo_retry(host, arguments, execute)  # type: ignore[arg-type]  # a TypedDict
    return code in success_exit_codes, output


def _converse(
    running: Running, stdin: Any, timeout: float | None, *, print_output: bool, prefix: str
) -> tuple[int, CommandOutput]:
    writer = gevent.spawn(_write, running, stdin)
    gevent.sleep(0)  # without gevent's patches nothing else would start the writer
    try:
        output = read_output_buffers(
            _text(running.stdout),
            _text(running.stderr),
            timeout=timeout,  # type: ignore[arg-type]  # gevent takes fractions of a second as well
            print_output=print_output,
            print_prefix=prefix,
        )
        if writer.ready():
            _raise_input_error(writer.value)
        return running.wait(), output
    finally:
        writer.kill()
        running.close()


def _write(running: Running, stdin: Any) -> Exception | None:
    """Send the input. Gives the error of the input itself; that the command stopped reading is none."""
    target = _UntilClosed(running.stdin)
    try:
        if stdin:
            send: Callable[..., None] = write_stdin
            send(stdin, target)
        target.close()
    except _StoppedReading:
        return None
    except Exception as error:  # noqa: BLE001  # whatever the caller's iterable raises
        running.abort()
        return error
    return None


def _raise_input_error(error: Exception | None) -> None:
    """Raise it as the kind of error that pyinfra counts against this host alone."""
    if isinstance(error, OSError):
        raise error
    if error is not None:
        message = f"the input for the command could not be read: {error}"
        raise OSError(message) from error


class _StoppedReading(Exception):  # noqa: N818  # no error: the exit code tells whether this was right
    """The command ended or closed its input."""


class _UntilClosed:
    """A file whose other end may close early."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def write(self, data: bytes) -> None:
        try:
            self._target.write(data)
            # At once: who makes the input may pause before there is more of it.
            self._target.flush()
        except (OSError, EOFError) as error:
            raise _StoppedReading from error

    def close(self) -> None:
        try:
            self._target.close()
        except (OSError, EOFError) as error:
            raise _StoppedReading from error


def _text(lines: Iterable[bytes]) -> Iterator[str]:
    """Decode leniently: one odd byte must not lose the rest of the output."""
    for line in lines:
        yield line.decode("utf-8", "replace")
