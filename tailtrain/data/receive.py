"""Receiving files on a node: from standard input into one folder, each visible only when its hash is right.

The source of this module is sent to a plain `python3` (3.9 or later) on the node, after those of
`tailtrain.data.verify` and `tailtrain.data.folder`; it uses the standard library only. Standard input is one
line of JSON:

    {"folder": "/var/lib/tailtrain/chunks", "owner": "tailtrain", "group": "tailtrain", "mode": "0640",
     "reserve_bytes": 1000000000, "files": [{"name": "...", "sha256": "...", "size": 123}, ...]}

and then the bytes of the files, one after the other, nothing between them. `owner`, `group`, `mode` and
`reserve_bytes` may be left out. Standard output is one line of JSON, see `main`.

Killed at any byte, what bears its name is whole, and the next run sweeps what does not; see
`tailtrain.data.folder`. A file that is there already and right is left alone, its bytes are skipped.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from tailtrain.data.folder import Folder, Incoming, Refused, plain
from tailtrain.data.verify import RECORD

if TYPE_CHECKING:
    from types import FrameType

IDLE_SECONDS = 300
"""How long the sender may be silent before the transfer counts as dead."""

_BLOCK = 1 << 20
# Written files that wait for the disk: more of them would only take descriptors.
_WAITING = 8
# Chunks, manifests, wheels, units: never `..`, a hidden name or a path.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Keeper:
    """Gives files their names in a thread of its own: the next one is received while the disk still writes.

    Attributes:
        received: files that were kept.
        bytes: what those have together.

    Raises:
        Refused: from `keep` and `finish`: a file before could not be kept; those after it are thrown away.
    """

    def __init__(self) -> None:
        self.received = 0
        self.bytes = 0
        self._problem: Refused | None = None
        self._waiting: queue.Queue[tuple[Incoming, int, contextlib.ExitStack] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def keep(self, file: Incoming, size: int, opened: contextlib.ExitStack) -> None:
        """Keep a file that is written, and close it in any case."""
        self._waiting.put((file, size, opened))
        self._raise()

    def finish(self) -> None:
        """Return when nothing is left to do."""
        self._waiting.put(None)
        self._thread.join()
        self._raise()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            file, size, opened = item
            with opened:
                if self._problem is None:
                    try:
                        file.keep()
                    except Refused as error:
                        self._problem = error
                    else:
                        self.received += 1
                        self.bytes += size

    def _raise(self) -> None:
        if self._problem is not None:
            raise self._problem


class Receiver:
    """One transfer into one folder.

    Attributes:
        skipped: files that were there already.
    """

    def __init__(self, options: dict[str, Any], stream: BinaryIO) -> None:
        self.skipped = 0
        self._stream = stream
        self._block = memoryview(bytearray(_BLOCK))
        self._files = [_checked(each) for each in options["files"]]
        self._folder = Folder(
            str(options["folder"]),
            mode=str(options.get("mode") or "0640"),
            owner=options.get("owner"),
            group=options.get("group"),
            reserve_bytes=int(options.get("reserve_bytes") or 0),
        )
        self._keeper = Keeper()

    @property
    def received(self) -> int:
        """Files that were written."""
        return self._keeper.received

    @property
    def bytes(self) -> int:
        """What was written."""
        return self._keeper.bytes

    def run(self) -> None:
        """Receive all files; Refused says why not."""
        folder = self._folder
        try:
            folder.sweep()
            there = {name for name, sha256, size in self._files if folder.has(name, sha256, size)}
            to_come = [size for name, _, size in self._files if name not in there]
            folder.check_space(sum(to_come), len(to_come))
            try:
                for name, sha256, size in self._files:
                    if name in there:
                        self._skip(name, size)
                    else:
                        self._receive(name, sha256, size)
            finally:
                try:
                    self._keeper.finish()
                finally:
                    folder.settle()
        finally:
            folder.close()

    def _skip(self, name: str, size: int) -> None:
        while size:
            size -= len(self._read(name, size))
        self.skipped += 1

    def _receive(self, name: str, sha256: str, size: int) -> None:
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(Incoming(self._folder, name, sha256, size))
            while file.left:
                file.write(self._read(name, file.left))
            self._keeper.keep(file, size, opened.pop_all())

    def _read(self, name: str, most: int) -> memoryview:
        """Read some bytes, at least one and at most `most`."""
        signal.alarm(IDLE_SECONDS)
        try:
            count = self._stream.readinto1(self._block[: min(most, _BLOCK)])  # type: ignore[attr-defined]
        except OSError as error:
            raise Refused(plain(error), name) from error
        signal.alarm(0)
        if not count:
            raise Refused(f"the sender stopped early, {most} bytes of the file were still to come", name)
        return self._block[:count]


def main() -> int:
    """Receive from standard input and say how it went, as one line of JSON on standard output.

    {"ok": true, "received": files, "skipped": files, "bytes": written, "seconds": s}, exit code 0; or with
    "ok": false, "error": plain words and "file": the name concerned or null, exit code 1. After an error the
    rest of the input is read and thrown away, so that the sender's side of the connection ends in order.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stopped)
    signal.signal(signal.SIGALRM, _silent)
    started = time.monotonic()
    stream = sys.stdin.buffer
    receiver: Receiver | None = None
    problem: Refused | None = None
    try:
        receiver = Receiver(json.loads(stream.readline()), stream)
        receiver.run()
    except Refused as error:
        problem = error
    except (ValueError, KeyError, TypeError) as error:
        problem = Refused(f"the transfer's first line is not understood: {error!r}")
    answer: dict[str, Any] = {
        "ok": problem is None,
        "received": receiver.received if receiver else 0,
        "skipped": receiver.skipped if receiver else 0,
        "bytes": receiver.bytes if receiver else 0,
        "seconds": round(time.monotonic() - started, 3),
    }
    if problem:
        answer.update(error=str(problem), file=problem.file)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    if problem:
        with contextlib.suppress(Refused, OSError):
            _drain(stream)
        return 1
    return 0


def _drain(stream: BinaryIO) -> None:
    while True:
        signal.alarm(IDLE_SECONDS)
        if not stream.read(_BLOCK):
            return


def _checked(entry: dict[str, Any]) -> tuple[str, str, int]:
    name, sha256, size = str(entry["name"]), str(entry["sha256"]), int(entry["size"])
    if not _NAME.fullmatch(name) or name == RECORD:
        raise Refused(f"this is not a name for a file here: {name!r}", name)
    if not _SHA256.fullmatch(sha256) or size < 0:
        raise Refused("its SHA-256 or size is not one", name)
    return name, sha256, size


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise Refused(f"stopped by {signal.Signals(number).name}")


def _silent(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Refused(f"the sender was silent for {IDLE_SECONDS} seconds")
