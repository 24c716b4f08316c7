"""The storage backend as a source: rclone, started when it is first needed, reads ranges of packs from it.

rclone's remote control serves single objects by HTTP (`rclone rcd --rc-serve`). Unlike `rclone serve http` it
asks the backend for exactly the range that it is asked for, and says in its answer why something failed. It
listens on a socket in a private folder, knows the remote from its environment, so writes nothing down, and
never outlives this process.

Runs on the nodes: standard library only.
"""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from tailtrain.data.packs import PACK_FOLDER
from tailtrain.data.pull_connections import CONNECT_SECONDS, SocketConnection
from tailtrain.data.pull_source import Chunk, Kind, Source, SourceError

if TYPE_CHECKING:
    import http.client
    from collections.abc import Mapping

START_SECONDS = 60.0
"""How long rclone may take to start, on a slow and busy host."""

_FLAGS = (
    *("--config", ""),  # no file: the environment says it all, and tokens that it renews stay in its memory
    *("--rc-serve", "--buffer-size", "0", "--stats", "0", "--log-level", "DEBUG"),
    *("--contimeout", "10s", "--timeout", "50s"),
)

# Drive limits how often it is asked; rclone then tries again, ever more slowly. Others fail for a reason.
_RETRIES = {"drive": "6"}
_FEW_RETRIES = "2"

# Runs rclone until a line comes on standard input, or its end: that comes when the process that has the other
# end of the pipe is no more. Standard error is then rclone's alone, so its end is rclone's. $0 goes with it.
_KEEPER = '"$@" </dev/null & child=$!; exec 2>/dev/null; read -r _; kill -9 "$child"; rm -rf -- "$0"'

# "2026/11/30 10:56:46 DEBUG : packs/0a: Get request open error: ..."; other lines may hold what is secret.
_COMPLAINT = re.compile(
    r"[\d/]+ [\d:]+ (?:(?=.* error)DEBUG|ERROR|CRITICAL)\s*: (.*)"
    r"|((?:/bin/)?sh: .*|Error: .*|panic: .*)"
)
_MOMENT_SECONDS = 0.3

# By what rclone and the backends say; the first that fits counts.
_MEANINGS: tuple[tuple[Kind, str, str], ...] = (
    (
        "limit",
        "the backend is at a limit",
        r"rate.?limit|quota|slow.?down|too ?many ?requests|limit ?exceeded|(?:StatusCode:|Error) (?:429|503)",
    ),
    (
        "refused",
        "the backend does not let this node in",
        (
            r"access.?denied|forbidden|unauthori[sz]ed|InvalidAccessKeyId|SignatureDoesNotMatch"
            r"|TimeTooSkewed|expired|invalid_grant|invalid_client|permission|(?:StatusCode:|Error) 40[13]"
        ),
    ),
    ("absent", "the backend does not have it", r"not found|NoSuchKey|NoSuchBucket|Error 404"),
    ("unreachable", "the backend does not answer", ""),
)


@dataclass(frozen=True)
class RcloneRemote:
    """Where the packs are.

    Attributes:
        path: `name:folder`, as rclone writes it.
        config: the file that has the section `name`.
        flags: more words for rclone's command line.
    """

    path: str
    config: str
    flags: tuple[str, ...] = ()


class Backend(Source):
    """The storage backend, read through an rclone of our own, which has tried several times when it fails."""

    give_up_after = 2

    def __init__(self, name: str, remote: RcloneRemote, rclone: str) -> None:
        super().__init__(name)
        self._remote = remote
        self._rclone = rclone
        self._child: _Child | None = None
        self._starting = threading.Lock()
        section, _, folder = remote.path.partition(":")
        self._section = section
        # An absolute path is one for rclone only behind the colon.
        self._prefix = f"/[{_Child.REMOTE}:{'/' if folder.startswith('/') else ''}]/" + "".join(
            f"{part}/" for part in [*folder.split("/"), PACK_FOLDER] if part
        )

    def adjacent(self, first: Chunk, second: Chunk) -> bool:
        """Whether they lie in one pack, one behind the other."""
        one, other = first.place, second.place
        return one is not None and other == one._replace(offset=one.offset + first.size)

    def connection(self) -> http.client.HTTPConnection:
        """One to rclone, which is started if it does not run."""
        with self._starting:
            if self._connections.closed:
                raise SourceError("unreachable", "stopped")
            if self._child is None or not self._child.runs:
                if self._child:
                    self._child.close()
                if not os.access(self._rclone, os.X_OK):
                    raise SourceError("refused", f"there is no program {self._rclone} that may be run")
                settings = _section(self._remote.config, self._section)
                try:
                    self._child = _Child(self._rclone, self._remote.flags, settings)
                except OSError as error:
                    raise SourceError("refused", f"rclone cannot be started: {error}") from error
            return SocketConnection(self._child.socket)

    def locate(self, chunk: Chunk) -> tuple[str, int | None]:
        """In its pack."""
        if chunk.place is None:
            raise SourceError("absent", "nothing says in which pack it is")
        return quote(f"{self._prefix}{chunk.place.pack}", safe="/[]:"), chunk.place.offset

    def explain(self, words: str, chunk: Chunk) -> SourceError:
        """Say it in plain words, followed by rclone's own."""
        try:
            said = str(json.loads(words[words.index("{") :])["error"])
        except (ValueError, KeyError, TypeError):
            said = self._said_of(chunk) or words
        return _meaning(said)

    def broken(self, words: str, chunk: Chunk) -> SourceError:
        """Say why rclone ended the connection, as far as it told."""
        said = self._said_of(chunk)
        return _meaning(f"{words}; {said}" if said else words)

    def _said_of(self, chunk: Chunk) -> str:
        child = self._child
        if child is None or chunk.place is None:
            return ""
        return child.said_of(chunk.place.pack) if child.runs else child.last_words

    def close(self) -> None:
        """End rclone too."""
        super().close()
        with self._starting:
            if self._child:
                self._child.close()


class _Child:
    """A running rclone; SourceError if it does not come up."""

    REMOTE = "backend"

    def __init__(self, rclone: str, flags: tuple[str, ...], settings: Mapping[str, str]) -> None:
        self._folder = tempfile.mkdtemp(prefix="tailtrain-pull-")
        self.socket = f"{self._folder}/rclone"
        self._said: deque[str] = deque(maxlen=50)
        keep = {name: value for name, value in os.environ.items() if not name.startswith("RCLONE_")}
        remote = {f"RCLONE_CONFIG_{self.REMOTE}_{key}".upper(): value for key, value in settings.items()}
        retries = ("--low-level-retries", _RETRIES.get(settings.get("type", ""), _FEW_RETRIES))
        address = ("--rc-addr", f"unix://{self.socket}", "--cache-dir", self._folder)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, self._folder, rclone, "rcd", *_FLAGS, *retries, *address, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**keep, **remote},
            # Who interrupts this process from the keyboard ends rclone through it, in order.
            start_new_session=True,
        )
        assert self._process.stdin  # noqa: S101 - a pipe was asked for
        assert self._process.stderr  # noqa: S101 - as above
        self._stdin = self._process.stdin
        self._listener = threading.Thread(target=self._listen, args=[self._process.stderr], daemon=True)
        self._listener.start()
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    @property
    def runs(self) -> bool:
        """Whether rclone has not ended."""
        return self._listener.is_alive()

    @property
    def last_words(self) -> str:
        """What rclone said last on its standard error."""
        return self._said[-1] if self._said else ""

    def said_of(self, name: str) -> str:
        """What rclone complained about last that names this file, if it does within a moment."""
        deadline = time.monotonic() + _MOMENT_SECONDS
        while time.monotonic() < deadline:
            for said in reversed(list(self._said)):
                if name in said:
                    with contextlib.suppress(ValueError):
                        self._said.remove(said)
                    return said
            time.sleep(0.02)
        return ""

    def close(self) -> None:
        """End it at once, and remove its folder."""
        if not self._stdin.closed:
            with contextlib.suppress(OSError), self._stdin:
                # A forked process may have the pipe too, so closing it would not be enough.
                self._stdin.write(b"\n")
        self._process.wait()
        self._listener.join(CONNECT_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self, stderr: IO[bytes]) -> None:
        with stderr:
            for line in stderr:
                found = _COMPLAINT.match(line.decode(errors="replace"))
                if found:
                    self._said.append(found[1] or found[2])

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.runs and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(CONNECT_SECONDS)
                probe.connect(self.socket)
                return
            time.sleep(0.02)
        # Without a word it was killed, or the host is too busy: that may get better.
        if words := self.last_words:
            raise SourceError("refused", f"rclone does not start: {words}")
        raise SourceError("unreachable", "rclone does not start")


def _section(path: str, name: str) -> Mapping[str, str]:
    """Read a remote's settings; SourceError: there are none."""
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#", ";"), default_section="")
    try:
        parser.read_string(Path(path).read_text(encoding="utf-8"), path)
        return dict(parser[name])
    except OSError as error:
        raise SourceError("refused", f"{path} cannot be read: {error.strerror}") from error
    except (configparser.Error, UnicodeDecodeError, KeyError):
        # What exactly is wrong stays untold: it could be a secret.
        raise SourceError("refused", f"{path} has no readable section [{name}]") from None


def _meaning(words: str) -> SourceError:
    words = " ".join(words.split())
    for kind, plain, pattern in _MEANINGS:
        if re.search(pattern, words, re.IGNORECASE):
            return SourceError(kind, f"{plain}: {words}")
    raise AssertionError(words)
